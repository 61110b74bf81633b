--------------------------- MODULE WriteAheadLog ---------------------------
(* The write-ahead log of docs/compat.md. It differs from the published     *)
(* model where that one cannot fail: a client may repeat an old key, a      *)
(* crash may come at any moment, also during recovery, and what is counted  *)
(* is the effects of a key, not only its entries. A key stays taken for     *)
(* ever, so there is no action that removes an entry.                       *)
(*                                                                          *)
(* BUGGY = TRUE leaves the look for the key out of AppendToWal: Idempotency *)
(* and OneEffect then fail. EventualRecovery and EventualCompletion hold    *)
(* because crashes are finitely many (MaxCrashes): a recovery that is       *)
(* killed again and again never ends.                                       *)
EXTENDS Naturals

CONSTANTS Clients, MaxEntries, MaxOperations, MaxCrashes, BUGGY

VARIABLES wal, effects, nextKey, crashed, recovering, nextEntryId, crashes

vars == <<wal, effects, nextKey, crashed, recovering, nextEntryId, crashes>>

Keys == 1..MaxOperations

Pending == {e \in wal : e.status = "Pending"}

Known(c, k) == \E e \in wal : e.client = c /\ e.key = k

Ended(e, s) == (wal \ {e}) \cup {[e EXCEPT !.status = s]}

Init ==
  /\ wal = {}
  /\ effects = [c \in Clients |-> [k \in Keys |-> 0]]
  /\ nextKey = [c \in Clients |-> 1]
  /\ crashed = FALSE
  /\ recovering = FALSE
  /\ nextEntryId = 1
  /\ crashes = 0

AppendToWal(c, k) ==
  /\ ~crashed
  /\ ~recovering
  /\ k <= nextKey[c]
  /\ nextEntryId <= MaxEntries
  /\ BUGGY \/ ~Known(c, k)
  /\ wal' = wal \cup {[id |-> nextEntryId, client |-> c, key |-> k, status |-> "Pending"]}
  /\ nextEntryId' = nextEntryId + 1
  /\ nextKey' = [nextKey EXCEPT ![c] = IF k = @ THEN @ + 1 ELSE @]
  /\ UNCHANGED <<effects, crashed, recovering, crashes>>

Apply(e) ==
  /\ wal' = Ended(e, "Completed")
  /\ effects' = [effects EXCEPT ![e.client][e.key] = @ + 1]
  /\ UNCHANGED <<nextKey, crashed, recovering, nextEntryId, crashes>>

CompleteOperation(e) == ~crashed /\ e \in Pending /\ Apply(e)

FailOperation(e) ==
  /\ ~crashed
  /\ e \in Pending
  /\ wal' = Ended(e, "Failed")
  /\ UNCHANGED <<effects, nextKey, crashed, recovering, nextEntryId, crashes>>

Crash ==
  /\ ~crashed
  /\ crashes < MaxCrashes
  /\ crashed' = TRUE
  /\ recovering' = FALSE
  /\ crashes' = crashes + 1
  /\ UNCHANGED <<wal, effects, nextKey, nextEntryId>>

StartRecovery ==
  /\ crashed
  /\ crashed' = FALSE
  /\ recovering' = TRUE
  /\ UNCHANGED <<wal, effects, nextKey, nextEntryId, crashes>>

RecoverEntry(e) ==
  /\ recovering
  /\ e \in Pending
  /\ \A other \in Pending : e.id <= other.id
  /\ Apply(e)

CompleteRecovery ==
  /\ recovering
  /\ Pending = {}
  /\ recovering' = FALSE
  /\ UNCHANGED <<wal, effects, nextKey, crashed, nextEntryId, crashes>>

Next ==
  \/ \E c \in Clients, k \in Keys : AppendToWal(c, k)
  \/ \E e \in wal : CompleteOperation(e) \/ FailOperation(e) \/ RecoverEntry(e)
  \/ Crash
  \/ StartRecovery
  \/ CompleteRecovery

Fairness ==
  /\ WF_vars(\E e \in wal : CompleteOperation(e))
  /\ WF_vars(\E e \in wal : RecoverEntry(e))
  /\ WF_vars(StartRecovery)
  /\ WF_vars(CompleteRecovery)

Spec == Init /\ [][Next]_vars /\ Fairness

TypeOK ==
  /\ \A e \in wal : e.status \in {"Pending", "Completed", "Failed"} /\ e.id < nextEntryId
  /\ crashed \in BOOLEAN
  /\ recovering \in BOOLEAN
  /\ ~(crashed /\ recovering)

Idempotency == \A e, f \in wal : (e.client = f.client /\ e.key = f.key) => e = f

OneEffect == \A c \in Clients, k \in Keys : effects[c][k] <= 1

Durability == \A e \in wal : e.status = "Completed" => effects[e.client][e.key] >= 1

EventualRecovery == crashed ~> (~crashed /\ ~recovering /\ Pending = {})

EventualCompletion == (Pending # {}) ~> (Pending = {})

ProgressUnderCrash == crashed ~> ~crashed

NoStarvation == \A c \in Clients : (\E e \in Pending : e.client = c) ~> ~(\E e \in Pending : e.client = c)
=============================================================================
