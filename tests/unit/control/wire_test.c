/* wire_test.c: fields, notes, frames and greetings, without a job around them. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/control/bootstrap_greet.h"
#include "runtime/control/control_state.h"

/* --- fields --- */

Test(wire, writes_integers_in_little_endian)
{
    static const uint8_t expected[] = {1, 3, 2, 7, 6, 5, 4, 15, 14, 13, 12, 11, 10, 9, 8, 2, 0, 'h', 'i'};
    struct sl_writer w;
    sl_writer_init(&w, sl_mem_default());
    sl_put_u8(&w, 1);
    sl_put_u16(&w, 0x0203);
    sl_put_u32(&w, 0x04050607);
    sl_put_u64(&w, UINT64_C(0x08090a0b0c0d0e0f));
    sl_put_text(&w, "hi there", 2);
    cr_assert_eq(w.bytes, sizeof(expected));
    cr_assert_eq(memcmp(w.data, expected, sizeof(expected)), 0);
    struct sl_reader r = sl_reader_of(w.data, w.bytes);
    char text[3];
    cr_assert_eq(sl_get_u8(&r), 1);
    cr_assert_eq(sl_get_u16(&r), 0x0203);
    cr_assert_eq(sl_get_u32(&r), 0x04050607);
    cr_assert_eq(sl_get_u64(&r), UINT64_C(0x08090a0b0c0d0e0f));
    sl_get_text(&r, text, sizeof(text));
    cr_assert_str_eq(text, "hi");
    cr_assert(sl_reader_done(&r));
    sl_writer_drop(&w);
}

Test(wire, never_reads_past_the_end)
{
    static const uint8_t data[] = {1, 2, 3};
    struct sl_reader r = sl_reader_of(data, sizeof(data));
    cr_assert_eq(sl_get_u32(&r), 0);
    cr_assert(r.failed);
    cr_assert_eq(sl_get_u8(&r), 0);
    cr_assert(!sl_reader_done(&r));
}

Test(wire, refuses_text_that_is_too_long_or_holds_a_nul)
{
    static const uint8_t too_long[] = {3, 0, 'a', 'b', 'c'};
    static const uint8_t with_nul[] = {2, 0, 'a', 0};
    char text[3];
    struct sl_reader r = sl_reader_of(too_long, sizeof(too_long));
    sl_get_text(&r, text, sizeof(text));
    cr_assert(r.failed);
    r = sl_reader_of(with_nul, sizeof(with_nul));
    sl_get_text(&r, text, sizeof(text));
    cr_assert(r.failed);
}

Test(wire, keeps_a_peer_s_text_on_one_line)
{
    static const uint8_t data[] = {3, 0, 'a', '\n', 'b'};
    char text[4];
    struct sl_reader r = sl_reader_of(data, sizeof(data));
    sl_get_text(&r, text, sizeof(text));
    cr_assert_str_eq(text, "a b");
}

Test(wire, takes_no_peer_s_error_for_success)
{
    struct sluice_error error = {.status = SLUICE_OK};
    struct sl_writer w;
    sl_writer_init(&w, sl_mem_default());
    sl_put_error(&w, &error);
    struct sl_reader r = sl_reader_of(w.data, w.bytes);
    sl_get_error(&r, &error);
    cr_assert_eq(error.status, SLUICE_PROTOCOL);
    sl_writer_drop(&w);
}

/* --- notes --- */

Test(wire, carries_every_field_of_a_note)
{
    struct sl_note note = {.key = 1, .a = 2, .b = 3, .c = 4, .d = 5, .e = 6, .f = UINT64_MAX, .kind = 7, .rank = 8};
    note.status = SLUICE_TIMEOUT;
    memset(note.text, 'x', sizeof(note.text) - 1);
    struct sl_note copy = {0};
    struct sl_writer w;
    sl_writer_init(&w, sl_mem_default());
    sl_note_encode(&note, &w);
    cr_assert(sl_note_decode(w.data, w.bytes, &copy));
    cr_assert_eq(copy.key, 1);
    cr_assert_eq(copy.a, 2);
    cr_assert_eq(copy.b, 3);
    cr_assert_eq(copy.c, 4);
    cr_assert_eq(copy.d, 5);
    cr_assert_eq(copy.e, 6);
    cr_assert_eq(copy.f, UINT64_MAX);
    cr_assert_eq(copy.kind, 7);
    cr_assert_eq(copy.rank, 8);
    cr_assert_eq(copy.status, SLUICE_TIMEOUT);
    cr_assert_str_eq(copy.text, note.text);
    for (size_t cut = 0; cut < w.bytes; cut++)
        cr_assert(!sl_note_decode(w.data, cut, &copy));
    sl_writer_drop(&w);
}

/* --- frames --- */

struct end {
    struct sl_wires wires;
    struct sl_wire *wire;
    uint32_t frames, ends;
    uint64_t bytes;
    enum sl_frame types[8];
    char why[96];
    uint8_t first;
};

static void on_frame(void *context, struct sl_wire *wire, enum sl_frame type, const uint8_t *payload, size_t bytes)
{
    (void)wire;
    struct end *end = context;
    if (end->frames < 8)
        end->types[end->frames] = type;
    end->frames++;
    end->bytes += bytes;
    if (bytes > 0)
        end->first = payload[bytes - 1];
}

static void on_end(void *context, struct sl_wire *wire, const char *why)
{
    struct end *end = context;
    end->ends++;
    snprintf(end->why, sizeof(end->why), "%s", why);
    sl_wire_close(wire);
    end->wire = NULL;
}

static const struct sl_wire_handlers handlers = {.on_frame = on_frame, .on_end = on_end};

/* A wire on one end of a socket pair; the other end is the test's. */
static int open_end(struct end *end)
{
    int fds[2];
    *end = (struct end){0};
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    cr_assert_eq(fcntl(fds[0], F_SETFL, O_NONBLOCK), 0);
    struct event_base *base = event_base_new();
    cr_assert_eq(sl_wires_open(&end->wires, base, sl_mem_default()), SLUICE_OK);
    cr_assert_eq(sl_wire_open(&end->wires, fds[0], &handlers, end, &end->wire), SLUICE_OK);
    return fds[1];
}

static void turn(struct end *end)
{
    event_base_loop(end->wires.base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    sl_wires_flush(&end->wires);
}

static void close_end(struct end *end, int fd)
{
    close(fd);
    sl_wire_close(end->wire);
    sl_wires_close(&end->wires);
    event_base_free(end->wires.base);
}

Test(wire, delivers_frames_however_they_are_cut)
{
    static const uint8_t frames[] = {2, 0, 0, 0, SL_FRAME_NOTE, 0, 0, 0, 'a', 'b', 0, 0, 0, 0, SL_FRAME_BEAT, 0, 0, 0};
    for (size_t step = 1; step <= sizeof(frames); step++) {
        struct end end;
        int fd = open_end(&end);
        for (size_t at = 0; at < sizeof(frames); at += step) {
            size_t bytes = sizeof(frames) - at < step ? sizeof(frames) - at : step;
            cr_assert_eq(write(fd, frames + at, bytes), (ssize_t)bytes);
            turn(&end);
        }
        cr_assert_eq(end.frames, 2, "step %zu", step);
        cr_assert_eq(end.types[0], SL_FRAME_NOTE);
        cr_assert_eq(end.types[1], SL_FRAME_BEAT);
        cr_assert_eq(end.bytes, 2);
        close_end(&end, fd);
    }
}

Test(wire, lets_small_frames_pass_a_large_message)
{
    const size_t bytes = 4 << 20;
    struct end out;
    struct end in;
    int fd = open_end(&out);
    cr_assert_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    in = (struct end){0};
    cr_assert_eq(sl_wires_open(&in.wires, event_base_new(), sl_mem_default()), SLUICE_OK);
    cr_assert_eq(sl_wire_open(&in.wires, fd, &handlers, &in, &in.wire), SLUICE_OK);
    uint8_t *data = sl_new(sl_mem_default(), bytes, "data");
    data[bytes - 1] = 42;
    struct sl_blob *blob = sl_blob_of(sl_mem_default(), data, bytes);
    sl_wire_send_blob(out.wire, SL_FRAME_PART, blob);
    sl_blob_drop(blob);
    turn(&out);
    sl_wire_send(out.wire, SL_FRAME_BEAT, NULL, 0);
    for (int i = 0; i < 100000 && in.frames < 2; i++) {
        turn(&out);
        turn(&in);
    }
    cr_assert_eq(in.frames, 2);
    cr_assert_eq(in.types[0], SL_FRAME_BEAT);
    cr_assert_eq(in.types[1], SL_FRAME_PART);
    cr_assert_eq(in.bytes, bytes);
    cr_assert_eq(in.first, 42);
    sl_wire_close(in.wire);
    sl_wires_close(&in.wires);
    event_base_free(in.wires.base);
    sl_wire_close(out.wire);
    sl_wires_close(&out.wires);
    event_base_free(out.wires.base);
}

Test(wire, ends_once_when_the_peer_does_not_read)
{
    struct end end;
    int fd = open_end(&end);
    static uint8_t payload[SL_FRAME_MAX];
    for (int i = 0; i < 1000 && end.ends == 0; i++) {
        if (end.wire != NULL)
            sl_wire_send(end.wire, SL_FRAME_NOTE, payload, sizeof(payload));
        turn(&end);
    }
    cr_assert_eq(end.ends, 1);
    cr_assert_str_eq(end.why, "it does not read what it is sent");
    close_end(&end, fd);
}

Test(wire, ends_once_when_the_peer_closes)
{
    struct end end;
    int fd = open_end(&end);
    shutdown(fd, SHUT_RDWR);
    for (int i = 0; i < 3; i++)
        turn(&end);
    cr_assert_eq(end.ends, 1);
    cr_assert_str_eq(end.why, "it closed the connection");
    close_end(&end, fd);
}

Test(wire, survives_random_bytes)
{
    struct sl_random random = {.state = 11};
    for (int round = 0; round < 300; round++) {
        struct end end;
        int fd = open_end(&end);
        uint8_t data[200];
        for (size_t i = 0; i < sizeof(data); i++)
            data[i] = (uint8_t)sl_random_below(&random, round % 3 == 0 ? 256 : 10); /* small values look like frames */
        cr_assert_eq(write(fd, data, sizeof(data)), (ssize_t)sizeof(data));
        turn(&end);
        turn(&end);
        close_end(&end, fd);
    }
}

/* --- greeting --- */

static void tokens(struct sl_token *right, struct sl_token *wrong)
{
    sl_token_of("the right secret", 16, right);
    sl_token_of("the wrong secret", 16, wrong);
}

Test(greet, satisfies_both_sides_that_know_the_token)
{
    struct sl_greet server;
    struct sl_greet client;
    struct sl_token right;
    struct sl_token wrong;
    uint8_t hello[SL_GREET_HELLO];
    uint8_t answer[SL_GREET_ANSWER];
    uint8_t last[SL_GREET_END];
    tokens(&right, &wrong);
    cr_assert_eq(sl_greet_hello(&server, hello), SLUICE_OK);
    cr_assert_eq(sl_greet_answer(&client, &right, hello, answer), SLUICE_OK);
    cr_assert(sl_greet_check(&server, &right, 1, answer, last));
    cr_assert_eq(sl_greet_finish(&client, &right, last), SLUICE_OK);
    cr_assert(!sl_greet_check(&server, &right, 0, answer, last));
    cr_assert_eq(sl_greet_finish(&client, &right, last), SLUICE_BUSY);
}

Test(greet, fails_when_either_side_does_not_know_the_token)
{
    struct sl_greet server;
    struct sl_greet client;
    struct sl_token right;
    struct sl_token wrong;
    uint8_t hello[SL_GREET_HELLO];
    uint8_t answer[SL_GREET_ANSWER];
    uint8_t last[SL_GREET_END];
    tokens(&right, &wrong);
    cr_assert_eq(sl_greet_hello(&server, hello), SLUICE_OK);
    cr_assert_eq(sl_greet_answer(&client, &wrong, hello, answer), SLUICE_OK);
    cr_assert(!sl_greet_check(&server, &right, 1, answer, last));
    cr_assert_eq(sl_greet_finish(&client, &wrong, last), SLUICE_AUTH);
    for (size_t i = 1; i < sizeof(last); i++)
        cr_assert_eq(last[i], 0, "a refusal proves nothing");
    last[0] = SL_GREET_WELCOME; /* a server that only claims to know it */
    cr_assert_eq(sl_greet_finish(&client, &right, last), SLUICE_AUTH);
    memcpy(last + 1, answer + 40, SL_PROOF_BYTES); /* or sends our own proof back */
    cr_assert_eq(sl_greet_finish(&client, &wrong, last), SLUICE_AUTH);
}

Test(greet, fails_when_any_bit_of_the_answer_differs)
{
    struct sl_greet server;
    struct sl_greet client;
    struct sl_token right;
    struct sl_token wrong;
    uint8_t hello[SL_GREET_HELLO];
    uint8_t answer[SL_GREET_ANSWER];
    uint8_t last[SL_GREET_END];
    tokens(&right, &wrong);
    cr_assert_eq(sl_greet_hello(&server, hello), SLUICE_OK);
    cr_assert_eq(sl_greet_answer(&client, &right, hello, answer), SLUICE_OK);
    for (size_t bit = 0; bit < 8 * sizeof(answer); bit++) {
        answer[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_assert(!sl_greet_check(&server, &right, 1, answer, last), "bit %zu", bit);
        answer[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    cr_assert(sl_greet_check(&server, &right, 1, answer, last));
    hello[0] ^= 1;
    cr_assert_eq(sl_greet_answer(&client, &right, hello, answer), SLUICE_PROTOCOL);
}

Test(token, derives_another_key_for_every_job)
{
    struct sl_token token;
    struct sl_token one;
    struct sl_token two;
    uint8_t nonce[SL_NONCE_BYTES] = {0};
    sl_token_of("the right secret", 16, &token);
    sl_token_derive(&token, nonce, &one);
    nonce[0] = 1;
    sl_token_derive(&token, nonce, &two);
    cr_assert_neq(memcmp(&one, &two, sizeof(one)), 0);
    cr_assert_neq(memcmp(&one, &token, sizeof(one)), 0);
}
