/*
 * commit.pml: the commit of a version (runtime/engine, runtime/control) with the loss of ranks at any step.
 *
 * - RANKS ranks, rank 0 hosts the arbiter; up to LOSSES of them are lost whenever it hurts, and up to FAILURES
 *   times a rank fails alone. WHOLE 1: the version is staged whole; 0: windows after the staged prefix follow
 *   the decision and need every rank.
 * - Channels keep their order; what a lost rank sent may arrive up to any point and not beyond. With a
 *   majority alive the lowest rank takes the arbiter's place and asks for standings (takeover.c).
 * - Deadlines are not modelled: a rank that would need one to get on is found as an invalid end state.
 *
 * Checked: nobody touches live weights before all ranks voted for it; a rank that lives and says "old version
 * untouched" or "committed" is contradicted by no other that lives; "committed" means that every rank, the lost
 * ones too, has every byte; everybody comes to an end.
 */
#ifndef RANKS
#define RANKS 3
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef FAILURES
#define FAILURES 1
#endif
#ifndef WHOLE
#define WHOLE 1
#endif
#define NOBODY RANKS

mtype = { VOTE, OUTCOME, STANDING };

/* Phases; REST stands for READY and GRANT of the windows after the staged prefix. */
#define STAGED 1
#define DECIDE 2
#define REST   3
#define FINAL  4
#define BIT(phase) (1 << (phase))

/* Of a vote, an outcome or a standing. */
#define OK        0
#define FAILED    1
#define UNDECIDED 2
#define ABSENT    3
#define SPLIT     4 /* decided, but not by all */

/* A rank's states, as in runtime/engine/run.h. */
#define WINDOWS      0
#define STAGED_VOTE  1
#define GATES        2
#define DECIDE_VOTE  3
#define REST_WINDOWS 4
#define COMMIT       5
#define FINAL_VOTE   6
#define ENDED        7

/* How a run ended at a rank. */
#define RUNNING    0
#define OLD        1 /* failed, the old version is untouched */
#define COMMITTED  2
#define TORN       3
#define NOT_KNOWN  4

bool alive[RANKS];
bool touched[RANKS]; /* live weights were written */
bool whole[RANKS];   /* every byte of the version is in place */
byte voted[RANKS];
byte seen[RANKS];
byte result[RANKS];
byte host = 0; /* of the arbiter; NOBODY: no majority is left */
byte losses = 0;
byte failures = 0;

/* By host * RANKS + rank: kind, phase or voted bits, status, seen bits. */
chan up[RANKS * RANKS] = [3] of { mtype, byte, byte, byte };
chan down[RANKS * RANKS] = [4] of { byte, byte };

inline for_all_alive_check(rank, value)
{
    k = 0;
    do
    :: k < RANKS ->
        if
        :: alive[k] && k != rank ->
            assert(!(value == OLD && (touched[k] || result[k] == COMMITTED)));
            assert(!(value == COMMITTED && (result[k] == OLD || result[k] == TORN)));
            assert(!(value == TORN && result[k] == COMMITTED));
        :: else
        fi;
        k++
    :: else -> break
    od
}

inline end(rank, value)
{
    for_all_alive_check(rank, value);
    if
    :: value == COMMITTED ->
        k = 0;
        do
        :: k < RANKS -> assert(whole[k]); k++
        :: else -> break
        od
    :: else
    fi;
    result[rank] = value;
    state = ENDED
}

inline touch(rank)
{
    k = 0;
    do
    :: k < RANKS ->
        assert(voted[k] & BIT(DECIDE));
        assert(!alive[k] || result[k] != OLD);
        k++
    :: else -> break
    od;
    touched[rank] = true
}

inline tell(rank, phase, status)
{
    if
    :: alive[arbiter] -> up[arbiter * RANKS + rank]!VOTE(phase, status, 0)
    :: else /* into a dead socket */
    fi;
    if
    :: status == OK -> voted[rank] = voted[rank] | BIT(phase)
    :: else
    fi
}

/* The outcome of a phase came. */
inline learn(rank, phase, status)
{
    if
    :: state == ENDED
    :: state != ENDED && status == UNDECIDED -> end(rank, NOT_KNOWN)
    :: state != ENDED && status == SPLIT -> end(rank, TORN)
    :: state != ENDED && status == FAILED && state >= REST_WINDOWS -> end(rank, TORN)
    :: state != ENDED && status == FAILED && state < REST_WINDOWS -> end(rank, OLD)
    :: status == OK && phase == STAGED && state == STAGED_VOTE -> state = GATES
    :: status == OK && phase == DECIDE && state == DECIDE_VOTE ->
        seen[rank] = seen[rank] | BIT(DECIDE);
        state = (WHOLE -> COMMIT : REST_WINDOWS)
    :: status == OK && phase == REST && state == REST_WINDOWS ->
        touch(rank);
        state = COMMIT
    :: status == OK && phase == FINAL && state == FINAL_VOTE ->
        seen[rank] = seen[rank] | BIT(FINAL);
        end(rank, COMMITTED)
    :: status == OK && state != ENDED && ((phase == DECIDE && state > DECIDE_VOTE) || (phase == REST && state > REST_WINDOWS))
    fi
}

/* The arbiter's rank is gone. */
inline stand(rank)
{
    arbiter = host;
    if
    :: arbiter == NOBODY && state < DECIDE_VOTE -> end(rank, OLD)
    :: arbiter == NOBODY && (state == DECIDE_VOTE || state == FINAL_VOTE) -> end(rank, NOT_KNOWN)
    :: arbiter == NOBODY && state == REST_WINDOWS -> end(rank, TORN)
    :: arbiter == NOBODY && state == COMMIT && !WHOLE -> end(rank, TORN)
    :: arbiter == NOBODY && (state == ENDED || (state == COMMIT && WHOLE))
    :: arbiter != NOBODY ->
        up[arbiter * RANKS + rank]!STANDING(voted[rank],
            (state != ENDED || result[rank] == COMMITTED -> OK : ABSENT),
            (state != ENDED || result[rank] == COMMITTED -> seen[rank] : 0))
    fi
}

proctype Rank(byte rank)
{
    byte arbiter = 0;
    byte state = WINDOWS;
    byte phase, status, k;
    bool asked_rest = false;
    do
    :: atomic { !alive[rank] -> break }
    :: atomic { alive[rank] && state == WINDOWS -> state = STAGED_VOTE; tell(rank, STAGED, OK) }
    :: atomic { alive[rank] && state == GATES -> state = DECIDE_VOTE; tell(rank, DECIDE, OK) }
    /* A failure of this rank alone, before it voted for the decision. */
    :: atomic { alive[rank] && (state == WINDOWS || state == GATES) && failures < FAILURES ->
        failures++; end(rank, OLD); tell(rank, FINAL, FAILED); k = 0 }
    :: atomic { alive[rank] && state == REST_WINDOWS && !asked_rest && arbiter != NOBODY ->
        asked_rest = true; tell(rank, REST, OK) }
    :: atomic { alive[rank] && state == COMMIT && !touched[rank] -> touch(rank); k = 0 }
    :: atomic { alive[rank] && state == COMMIT && touched[rank] ->
        whole[rank] = true;
        state = FINAL_VOTE;
        if
        :: arbiter == NOBODY -> end(rank, NOT_KNOWN)
        :: arbiter != NOBODY -> tell(rank, FINAL, OK)
        fi;
        k = 0 }
    :: atomic { alive[rank] && state == COMMIT && failures < FAILURES -> failures++; end(rank, TORN);
        if
        :: arbiter != NOBODY -> tell(rank, FINAL, FAILED)
        :: arbiter == NOBODY
        fi;
        k = 0 }
    :: atomic { alive[rank] && arbiter != NOBODY && nempty(down[(arbiter % RANKS) * RANKS + rank]) ->
        down[arbiter * RANKS + rank]?phase, status;
        learn(rank, phase, status);
        phase = 0; status = 0; k = 0 }
    /* What the lost arbiter had sent may be lost from any point on. */
    :: atomic { alive[rank] && arbiter != NOBODY && !alive[arbiter % RANKS] -> stand(rank); k = 0 }
    :: atomic { alive[rank] && state == ENDED && (arbiter == NOBODY || alive[arbiter % RANKS]) &&
        (arbiter == NOBODY || empty(down[(arbiter % RANKS) * RANKS + rank])) && losses == LOSSES -> break }
    od
}

inline tell_all(a_phase, a_status)
{
    k = 0;
    do
    :: k < RANKS ->
        if
        :: alive[k] -> down[here * RANKS + k]!a_phase, a_status
        :: else
        fi;
        k++
    :: else -> break
    od
}

inline finish(a_status)
{
    over = true;
    tell_all(FINAL, a_status)
}

/* Gives what all that live voted for; a lost rank without its last vote leaves the outcome undecided. */
inline decide()
{
    if
    :: over || collecting
    :: !over && !collecting && (all_voted & BIT(FINAL)) -> finish((undecided -> UNDECIDED : OK))
    :: !over && !collecting && !(all_voted & BIT(FINAL)) ->
        k = STAGED;
        next = 0;
        do
        :: k <= REST ->
            if
            :: (all_voted & BIT(k)) && !(given & BIT(k)) -> given = given | BIT(k); next = k
            :: else
            fi;
            k++
        :: else -> break
        od;
        if
        :: next -> tell_all(next, OK)
        :: else
        fi
    fi
}

/* The phases that every rank voted for; the last vote is not expected of the lost. */
inline count_votes()
{
    all_voted = 255;
    k = 0;
    do
    :: k < RANKS ->
        all_voted = all_voted & (votes[k] | (known_lost[k] -> BIT(FINAL) : 0));
        k++
    :: else -> break
    od
}

/* A rank that is absent has failed: it may have seen the decision. */
inline resolve()
{
    collecting = false;
    count_votes();
    if
    :: any_seen & BIT(FINAL) -> finish(OK)
    :: else ->
        if
        :: !may_decide -> finish(FAILED)
        :: may_decide && (failed || absent) -> finish(((any_seen & BIT(DECIDE)) -> SPLIT : UNDECIDED))
        :: may_decide && !failed && !absent && (any_seen & BIT(DECIDE)) && WHOLE ->
            undecided = true;
            given = given | BIT(STAGED) | BIT(DECIDE);
            tell_all(DECIDE, OK);
            decide()
        :: may_decide && !failed && !absent && !((any_seen & BIT(DECIDE)) && WHOLE) ->
            finish(((all_voted & BIT(FINAL)) -> UNDECIDED : FAILED))
        fi
    fi
}

/* All that live have told their standing. */
inline try_resolve()
{
    k = 0;
    next = 1;
    do
    :: k < RANKS ->
        if
        :: !known_lost[k] && !stood[k] -> next = 0
        :: else
        fi;
        k++
    :: else -> break
    od;
    if
    :: collecting && next -> resolve()
    :: else
    fi
}

/* A note of rank i, or its loss, is not handled yet. */
#define SOMETHING(i) (!known_lost[i] && (nempty(up[here * RANKS + i]) || !alive[i]))

inline handle(i)
{
    if
    :: nempty(up[here * RANKS + i]) ->
        if
        :: up[here * RANKS + i]?VOTE(bits, status, saw) ->
            if
            :: status == OK ->
                votes[i] = votes[i] | BIT(bits);
                count_votes();
                decide()
            :: status == FAILED && collecting -> failed = true
            :: status == FAILED && !collecting && !over -> finish(FAILED)
            :: status == FAILED && !collecting && over
            fi
        :: up[here * RANKS + i]?STANDING(bits, status, saw) ->
            stood[i] = true;
            votes[i] = votes[i] | bits;
            any_seen = any_seen | saw;
            absent = absent || status == ABSENT;
            may_decide = may_decide && (status == ABSENT || (bits & BIT(DECIDE)));
            try_resolve()
        fi
    :: !alive[i] ->
        known_lost[i] = true;
        if
        :: collecting -> try_resolve()
        :: !collecting && over
        :: !collecting && !over && !((given & BIT(DECIDE)) && WHOLE) -> finish(FAILED)
        :: !collecting && !over && (given & BIT(DECIDE)) && WHOLE ->
            undecided = undecided || !(votes[i] & BIT(FINAL));
            count_votes();
            decide()
        fi
    fi;
    bits = 0;
    status = 0;
    saw = 0;
    k = 0;
    next = 0;
    all_voted = 0
}

proctype Arbiter(byte here; bool collecting)
{
    bool known_lost[RANKS];
    bool stood[RANKS];
    byte votes[RANKS];
    byte given = 0, any_seen = 0, all_voted = 0;
    bool over = false, undecided = false, failed = false, absent = false, may_decide = true;
    byte k, next, bits, status, saw;
    do
    :: atomic { !alive[here] -> break }
    :: atomic { alive[here] && losses == LOSSES && over -> break }
    :: atomic { alive[here] && SOMETHING(0) -> handle(0) }
    :: atomic { alive[here] && SOMETHING(1) -> handle(1) }
    :: atomic { alive[here] && SOMETHING(2) -> handle(2) }
#if RANKS > 3
    :: atomic { alive[here] && SOMETHING(3) -> handle(3) }
#endif
    od
}

inline succeed_arbiter()
{
    k = 0;
    live = 0;
    host = NOBODY;
    do
    :: k < RANKS ->
        if
        :: alive[k] && host == NOBODY -> host = k
        :: else
        fi;
        live = live + alive[k];
        k++
    :: else -> break
    od;
    if
    :: live * 2 > RANKS -> run Arbiter(host, true)
    :: else -> host = NOBODY
    fi
}

inline lose(victim)
{
    alive[victim] = false;
    losses++;
    if
    :: victim == host -> succeed_arbiter()
    :: else
    fi;
    k = 0;
    live = 0
}

active proctype Fate()
{
    byte k, live;
    atomic {
        k = 0;
        do
        :: k < RANKS -> alive[k] = true; run Rank(k); k++
        :: else -> break
        od;
        run Arbiter(0, false)
    }
    do
    :: atomic { losses < LOSSES && alive[0] -> lose(0) }
    :: atomic { losses < LOSSES && alive[1] -> lose(1) }
    :: atomic { losses < LOSSES && alive[2] -> lose(2) }
#if RANKS > 3
    :: atomic { losses < LOSSES && alive[3] -> lose(3) }
#endif
    :: atomic { losses < LOSSES -> losses = LOSSES; break } /* fewer are lost */
    :: losses == LOSSES -> break
    od
}
