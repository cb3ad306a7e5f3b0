/* main.c: in place of libFuzzer: runs a target once over each file that is named, and once over nothing. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { BYTES_MAX = 1 << 20 };

static int replay(const char *path)
{
    static uint8_t data[BYTES_MAX];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return 1;
    }
    size_t bytes = fread(data, 1, sizeof data, file);
    (void)fclose(file);
    uint8_t *copy = malloc(bytes + 1); /* of its own size, so that a sanitizer sees a read behind the end */
    if (copy == NULL)
        return 1;
    for (size_t i = 0; i < bytes; i++)
        copy[i] = data[i];
    uint8_t *exact = realloc(copy, bytes > 0 ? bytes : 1);
    copy = exact != NULL ? exact : copy;
    (void)LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
    return 0;
}

int main(int argc, char **argv)
{
    int failed = LLVMFuzzerTestOneInput((const uint8_t *)"", 0) != 0;
    for (int i = 1; i < argc; i++)
        failed |= replay(argv[i]);
    printf("%d inputs\n", argc - 1);
    return failed;
}
