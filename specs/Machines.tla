------------------------------ MODULE Machines ------------------------------
(* Written by `python -m holdfast.model.specs` from the transition table; not edited by hand. *)
VARIABLES machine, state

Names == {"JOB", "EXECUTION", "REQUEST", "GRANT", "PROCEDURE", "STEP", "VALUE", "SWITCH", "SETTING"}

Edges == [
  JOB |-> {<<"failed", "pending">>, <<"failed", "quarantined">>, <<"pending", "quarantined">>, <<"pending", "running">>, <<"quarantined", "pending">>, <<"running", "failed">>, <<"running", "succeeded">>, <<"null", "pending">>},
  EXECUTION |-> {<<"COMMITTED", "DONE">>, <<"IN_PROGRESS", "ABORTED">>, <<"IN_PROGRESS", "COMMITTED">>, <<"LEASED", "ABORTED">>, <<"LEASED", "IN_PROGRESS">>, <<"null", "LEASED">>},
  REQUEST |-> {<<"null", "requested">>},
  GRANT |-> {<<"active", "consumed">>, <<"active", "expired">>, <<"active", "revoked">>, <<"draft", "active">>, <<"draft", "revoked">>, <<"null", "draft">>},
  PROCEDURE |-> {<<"compensating", "stopped">>, <<"planned", "running">>, <<"planned", "stopped">>, <<"running", "compensating">>, <<"running", "done">>, <<"running", "stopped">>, <<"stopped", "running">>, <<"null", "planned">>},
  STEP |-> {<<"performed", "undone">>, <<"null", "performed">>},
  VALUE |-> {<<"active", "retired">>, <<"active", "superseded">>, <<"null", "active">>},
  SWITCH |-> {<<"on", "off">>, <<"null", "on">>},
  SETTING |-> {<<"active", "removed">>, <<"active", "replaced">>, <<"null", "active">>}]

Governed == [
  JOB |-> {<<"quarantined", "pending">>},
  EXECUTION |-> {},
  REQUEST |-> {},
  GRANT |-> {},
  PROCEDURE |-> {},
  STEP |-> {},
  VALUE |-> {<<"active", "retired">>, <<"active", "superseded">>, <<"null", "active">>},
  SWITCH |-> {<<"on", "off">>},
  SETTING |-> {}]

Final == [
  JOB |-> {"quarantined", "succeeded"},
  EXECUTION |-> {"ABORTED", "DONE"},
  REQUEST |-> {"requested"},
  GRANT |-> {"consumed", "expired", "revoked"},
  PROCEDURE |-> {"done"},
  STEP |-> {"undone"},
  VALUE |-> {"retired", "superseded"},
  SWITCH |-> {"off"},
  SETTING |-> {"removed", "replaced"}]

States == [
  JOB |-> {"failed", "null", "pending", "quarantined", "running", "succeeded"},
  EXECUTION |-> {"ABORTED", "COMMITTED", "DONE", "IN_PROGRESS", "LEASED", "null"},
  REQUEST |-> {"null", "requested"},
  GRANT |-> {"active", "consumed", "draft", "expired", "null", "revoked"},
  PROCEDURE |-> {"compensating", "done", "null", "planned", "running", "stopped"},
  STEP |-> {"null", "performed", "undone"},
  VALUE |-> {"active", "null", "retired", "superseded"},
  SWITCH |-> {"null", "off", "on"},
  SETTING |-> {"active", "null", "removed", "replaced"}]

Init == machine \in Names /\ state = "null"

Next == \E edge \in Edges[machine] : edge[1] = state /\ state' = edge[2] /\ machine' = machine

Spec == Init /\ [][Next]_<<machine, state>>

TypeOK == state \in States[machine]

FinalIsLeftByAGrant == [][(state \in Final[machine]) => <<state, state'>> \in Governed[machine]]_state
=============================================================================
