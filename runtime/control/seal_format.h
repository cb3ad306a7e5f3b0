/*
 * seal_format.h: what the parts and results of a seal's rounds hold, shared by both ends of seal*.c.
 * A part begins with format, library version and phase; a result with format and kind.
 */
#ifndef SL_CONTROL_SEAL_FORMAT_H
#define SL_CONTROL_SEAL_FORMAT_H

#include "runtime/control/seal.h"
#include "runtime/control/wire_bytes.h"

#define SL_SEAL_FORMAT          1u
#define SL_SEAL_ENVIRONMENT_MAX 16384u
#define SL_SEAL_DETAIL_MAX      (UINT32_C(60) << 20) /* bytes of one rank's task list; a round carries 64 MiB */

enum sl_seal_phase { SL_SEAL_TERMS = 1, SL_SEAL_RECHECK = 2, SL_SEAL_DETAIL = 3, SL_SEAL_FAILED = 4 };
enum sl_seal_kind { SL_SEAL_AGREED = 1, SL_SEAL_AGAIN = 2, SL_SEAL_COMPARE = 3 };

/* Terms that must be equal everywhere, as numbers. */
enum sl_seal_term {
    SL_TERM_WORLD,
    SL_TERM_POLICY,
    SL_TERM_WINDOW_BYTES,
    SL_TERM_DIRECT_MIN,
    SL_TERM_SLOTS,
    SL_TERM_FORCE,
    SL_TERM_ITEMS_MAX,
    SL_TERM_BACKEND_VERSION,
    SL_TERMS
};

/* What every round's part says: enough for rank 0 to agree without memory. */
struct sl_seal_proposal {
    uint64_t window_bytes;
    uint64_t shadow_bytes;
    uint64_t landing_bytes; /* received and copied locally, padding counted */
    uint32_t windows;       /* proposed */
    uint32_t base;          /* RECHECK: what was proposed to us */
    uint32_t blocks;        /* RECHECK: as dealt */
    uint32_t attempt;       /* RECHECK: 1.. */
    _Bool packed;           /* direct_min becomes 0 */
};

/* One pair stream as one end sees it. */
struct sl_seal_stream {
    uint64_t digest, units, bytes;
    uint32_t peer, count;
    _Bool receive;
};

/* One task of a pair, for finding the first that differs. */
struct sl_seal_task {
    uint64_t id, bytes;
    uint32_t window;
    uint16_t part;
    uint8_t dtype;
};
#define SL_SEAL_TASK_BYTES   23u
#define SL_SEAL_STREAM_BYTES 33u

struct sl_seal_answer {
    enum sl_seal_kind kind;
    uint32_t windows, blocks, attempt, staged;
    _Bool packed;
    uint32_t source, destination; /* COMPARE */
    size_t map_count;             /* AGAIN after dealing: {source u32, destination u32, block u16} */
    const uint8_t *map;
};
#define SL_SEAL_MAP_BYTES 10u

void sl_seal_put_head(struct sl_writer *w, enum sl_seal_phase phase);
void sl_seal_put_proposal(struct sl_writer *w, const struct sl_seal_proposal *p);
void sl_seal_get_proposal(struct sl_reader *r, struct sl_seal_proposal *ret);
void sl_seal_put_stream(struct sl_writer *w, const struct sl_seal_stream *stream);
void sl_seal_get_stream(struct sl_reader *r, struct sl_seal_stream *ret);
void sl_seal_put_task(struct sl_writer *w, const struct sl_seal_task *task);
void sl_seal_get_task(struct sl_reader *r, struct sl_seal_task *ret);
/* Everything but the map, which follows. */
void sl_seal_put_answer(struct sl_writer *w, const struct sl_seal_answer *answer);
void sl_seal_get_answer(struct sl_reader *r, struct sl_seal_answer *ret);

/* A round at rank 0, past the heads: readers stand behind them. */
struct sl_seal_round {
    struct sl_reader *readers; /* one a rank */
    uint32_t world;
    struct sl_mem *mem;
    struct sluice_error *error;
};
sluice_status sl_seal_reduce_terms(struct sl_seal_round *round, struct sl_writer *out);
sluice_status sl_seal_reduce_recheck(struct sl_seal_round *round, struct sl_writer *out);
/* Always an error: MISMATCH that names the task. */
sluice_status sl_seal_reduce_detail(struct sl_seal_round *round);
/* Agrees from all proposals: AGREED, or AGAIN with the largest N. LIMIT after the last recheck. */
sluice_status sl_seal_settle(struct sl_seal_round *round, const struct sl_seal_proposal *proposals, uint32_t base,
                             struct sl_seal_answer *ret);
sluice_status sl_seal_bad_part(struct sl_seal_round *round, uint32_t rank);

#endif
