/*
 * base.h: what every other public header needs.
 *
 * - Status values, the detailed error, limits, data types, opaque handles.
 * - A function that returns `sluice_status` sets its outputs on success only.
 * - After a failed call, `sluice_last_error()` on the same thread has the detail.
 * - Comments name the errors to expect of a call. Beside them every call may say INVALID (NULL or a value that does
 *   not exist), NOMEM where it makes something, and FORKED in the child of a fork.
 * - Structs with a `size` begin as SLUICE_..._INIT says; they may grow, and what a program does not know stays zero.
 * - Destructors return void and accept NULL.
 */
#ifndef SLUICE_BASE_H
#define SLUICE_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SLUICE_VERSION_MAJOR 0
#define SLUICE_VERSION_MINOR 1
#define SLUICE_VERSION_PATCH 0
/* Grows by one with every incompatible change of the binary interface. */
#define SLUICE_ABI_VERSION 1u

#if defined(__GNUC__)
#define SLUICE_API                           __attribute__((visibility("default")))
#define SLUICE_NODISCARD                     __attribute__((warn_unused_result))
#define SLUICE_PRINTF(format_arg, first_arg) __attribute__((format(printf, format_arg, first_arg)))
#else
#define SLUICE_API
#define SLUICE_NODISCARD
#define SLUICE_PRINTF(format_arg, first_arg)
#endif

/* A struct that is all zero but for its `size`: what SLUICE_..._INIT expand to, in C and, from C++11 on, in C++. */
#ifdef __cplusplus
#define SLUICE_SIZED(type)                                                                                             \
    ([] {                                                                                                              \
        type sluice_sized = {};                                                                                        \
        sluice_sized.size = sizeof(type);                                                                              \
        return sluice_sized;                                                                                           \
    }())
#else
#define SLUICE_SIZED(type)                                                                                             \
    {                                                                                                                  \
        .size = sizeof(type)                                                                                           \
    }
#endif

/*
 * Every status: X(name, value, words). Zero is success, errors are negative.
 * AGAIN and BUSY say "nothing was taken, come back"; they are no failures.
 */
#define SLUICE_STATUS_MAP(X)                                                                                           \
    X(OK, 0, "success")                                                                                                \
    X(AGAIN, -1, "try again: nothing was taken")                                                                       \
    X(BUSY, -2, "busy: finish what is pending first")                                                                  \
    X(INVALID, -3, "invalid argument")                                                                                 \
    X(STATE, -4, "call not allowed in this state")                                                                     \
    X(NOMEM, -5, "out of memory")                                                                                      \
    X(LIMIT, -6, "a limit was exceeded")                                                                               \
    X(UNSUPPORTED, -7, "not supported")                                                                                \
    X(NOT_FOUND, -8, "not found")                                                                                      \
    X(PARSE, -9, "malformed input")                                                                                    \
    X(PLAN, -10, "invalid plan")                                                                                       \
    X(MISMATCH, -11, "ranks disagree")                                                                                 \
    X(IO, -12, "input or output failed")                                                                               \
    X(SYSTEM, -13, "a system call failed")                                                                             \
    X(CONFIG, -14, "invalid setting")                                                                                  \
    X(TIMEOUT, -20, "deadline passed")                                                                                 \
    X(GATE_TIMEOUT, -21, "a gate did not open in time")                                                                \
    X(CANCELLED, -22, "cancelled")                                                                                     \
    X(ABORTED, -23, "aborted")                                                                                         \
    X(CLOSED, -24, "closed")                                                                                           \
    X(PEER_LOST, -30, "a peer was lost")                                                                               \
    X(PEER_FAILED, -31, "a peer reported a failure")                                                                   \
    X(AUTH, -32, "authentication failed")                                                                              \
    X(PROTOCOL, -33, "protocol violation")                                                                             \
    X(DEVICE, -40, "device error")                                                                                     \
    X(TRANSPORT, -41, "transport error")                                                                               \
    X(HANG, -42, "the group would hang")                                                                               \
    X(CORRUPT, -43, "content does not match its digest")                                                               \
    X(TORN, -44, "destination holds a torn version")                                                                   \
    X(UNDECIDED, -45, "the outcome of the commit is not known")                                                        \
    X(POISONED, -46, "the runtime must be recreated")                                                                  \
    X(FORKED, -47, "used in the child of a fork")

#define SLUICE_STATUS_ENUM(name, value, words) SLUICE_##name = (value),
typedef enum sluice_status { SLUICE_STATUS_MAP(SLUICE_STATUS_ENUM) } sluice_status;
#undef SLUICE_STATUS_ENUM

/* "SLUICE_TIMEOUT"; "SLUICE_UNKNOWN" for a value outside the list. Any thread. */
SLUICE_API const char *sluice_status_name(sluice_status status);
/* "deadline passed". Any thread. */
SLUICE_API const char *sluice_status_words(sluice_status status);

/* Where a native error code comes from. */
enum sluice_domain {
    SLUICE_DOMAIN_SLUICE = 0,
    SLUICE_DOMAIN_SYSTEM = 1, /* errno */
    SLUICE_DOMAIN_CUDA = 2,   /* cudaError_t */
    SLUICE_DOMAIN_NCCL = 3    /* ncclResult_t */
};

#define SLUICE_ERROR_WHERE_MAX 64
#define SLUICE_ERROR_TEXT_MAX  512

/* One failure in full. `text` is one line: it names what failed and what to do. */
struct sluice_error {
    sluice_status status; /* SLUICE_OK: no failure, and the rest is empty */
    int32_t domain;       /* enum sluice_domain */
    int64_t native;       /* errno, cudaError_t or ncclResult_t; 0 if none */
    char where[SLUICE_ERROR_WHERE_MAX];
    char text[SLUICE_ERROR_TEXT_MAX];
};

/*
 * The detail of the last call that failed on this thread; never NULL. Valid until the next call on
 * this thread. Not for use inside callbacks: an event carries its own error.
 */
SLUICE_API const struct sluice_error *sluice_last_error(void);

/* Version of the library that was loaded, as (major << 16) | (minor << 8) | patch. Any thread. */
SLUICE_API uint32_t sluice_version_number(void);
/* SLUICE_ABI_VERSION of the library that was loaded. Any thread. */
SLUICE_API uint32_t sluice_abi_version(void);

/* Times are 64-bit nanoseconds; sizes are bytes unless a name says otherwise. */
#define SLUICE_MICROSECOND UINT64_C(1000)
#define SLUICE_MILLISECOND UINT64_C(1000000)
#define SLUICE_SECOND      UINT64_C(1000000000)

/* Hard limits. */
#define SLUICE_UNIT        16u                 /* tasks are rounded up to this in a pair stream */
#define SLUICE_BYTES_MAX   (UINT64_C(1) << 62) /* of a parameter or task */
#define SLUICE_WORLD_MAX   65536u              /* ranks */
#define SLUICE_WINDOWS_MAX (1u << 20)          /* windows of one plan */
#define SLUICE_NAME_MAX    512u                /* bytes of a parameter name, terminator included */

/* Element types. The library moves bytes; the type is compared between the ends and shown. */
#define SLUICE_DTYPE_MAP(X)                                                                                            \
    X(U8, 1, "u8", 1)                                                                                                  \
    X(I8, 2, "i8", 1)                                                                                                  \
    X(BOOL, 3, "bool", 1)                                                                                              \
    X(F8E4M3, 4, "f8e4m3", 1)                                                                                          \
    X(F8E5M2, 5, "f8e5m2", 1)                                                                                          \
    X(F8E8M0, 6, "f8e8m0", 1)                                                                                          \
    X(U16, 7, "u16", 2)                                                                                                \
    X(I16, 8, "i16", 2)                                                                                                \
    X(F16, 9, "f16", 2)                                                                                                \
    X(BF16, 10, "bf16", 2)                                                                                             \
    X(U32, 11, "u32", 4)                                                                                               \
    X(I32, 12, "i32", 4)                                                                                               \
    X(F32, 13, "f32", 4)                                                                                               \
    X(U64, 14, "u64", 8)                                                                                               \
    X(I64, 15, "i64", 8)                                                                                               \
    X(F64, 16, "f64", 8)                                                                                               \
    X(BYTES, 17, "bytes", 1)

#define SLUICE_DTYPE_ENUM(name, value, text, bytes) SLUICE_DTYPE_##name = (value),
enum sluice_dtype {
    SLUICE_DTYPE_NONE = 0, /* this end of a task is not known on this rank */
    SLUICE_DTYPE_MAP(SLUICE_DTYPE_ENUM)
};
#undef SLUICE_DTYPE_ENUM

/* "bf16"; "none" for an unknown value. Any thread. */
SLUICE_API const char *sluice_dtype_name(uint8_t dtype);
/* Bytes of one element; 0 for an unknown value. Any thread. */
SLUICE_API uint32_t sluice_dtype_bytes(uint8_t dtype);

typedef struct sluice_runtime sluice_runtime;
typedef struct sluice_plan sluice_plan;
typedef struct sluice_gate sluice_gate;
typedef struct sluice_transfer sluice_transfer;

#ifdef __cplusplus
}
#endif
#endif
