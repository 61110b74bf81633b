"""JSON Schemas of the STAC extensions that the items use."""
