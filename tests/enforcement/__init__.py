"""Tests of what both databases refuse and write by themselves, tried through clients that are not Holdfast's."""
