/* json.c: no bytes make the JSON reader or its typed members crash, read too far or leak. */
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_members(const json_t *root)
{
    static const char *const keys[] = {"id", "name", "tasks", NULL};
    uint64_t number = 0;
    const char *text = NULL;
    const json_t *list = NULL;
    SL_IGNORE(sl_json_only(root, keys, "root"));
    SL_IGNORE(sl_json_u64(root, "id", "root", &number));
    SL_IGNORE(sl_json_text(root, "name", "root", &text));
    SL_IGNORE(sl_json_array(root, "tasks", "root", &list));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    json_t *root = NULL;
    sluice_status status = sl_json_parse((const char *)data, bytes, "input", &root);
    SL_ASSERT((status == SLUICE_OK) == (root != NULL));
    if (root)
        read_members(root);
    else
        SL_ASSERT(sluice_last_error()->status == status && sluice_last_error()->text[0]);
    json_decref(root);
    return 0;
}
