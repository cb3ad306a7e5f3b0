/* Included several times: SL_SETTING(id, variable, type, default, min, max, help). No guard on purpose. */
SL_SETTING(BACKEND, "SLUICE_BACKEND", SL_SETTING_TEXT, "", 0, 0,
           "backend: host, cuda or sim; default cuda where usable, else host")
SL_SETTING(PORT, "SLUICE_PORT", SL_SETTING_U32, "", 1, 65535, "TCP port of rank 0's control plane; default MASTER_PORT")
SL_SETTING(TOKEN_FILE, "SLUICE_TOKEN_FILE", SL_SETTING_TEXT, "", 0, 0,
           "file with the job's token, readable by its owner only")
SL_SETTING(BOOTSTRAP_TIMEOUT, "SLUICE_BOOTSTRAP_TIMEOUT", SL_SETTING_DURATION, "60s", 1, UINT64_MAX,
           "deadline for all ranks to join")
SL_SETTING(SEAL_TIMEOUT, "SLUICE_SEAL_TIMEOUT", SL_SETTING_DURATION, "60s", 1, UINT64_MAX, "deadline of a seal")
SL_SETTING(STALL_TIMEOUT, "SLUICE_STALL_TIMEOUT", SL_SETTING_DURATION, "30s", 1, UINT64_MAX,
           "no progress after a launch for this long is a failure")
SL_SETTING(ABORT_TIMEOUT, "SLUICE_ABORT_TIMEOUT", SL_SETTING_DURATION, "5s", 1, UINT64_MAX, "deadline of an abort")
SL_SETTING(HEARTBEAT, "SLUICE_HEARTBEAT", SL_SETTING_DURATION, "1s", 1, UINT64_MAX,
           "interval of heartbeats; a peer is lost after 5 missed")
SL_SETTING(WINDOW_BYTES, "SLUICE_WINDOW_BYTES", SL_SETTING_SIZE, "256M", 4096, UINT64_C(1) << 40,
           "most bytes a rank moves each way per window")
SL_SETTING(DIRECT_MIN, "SLUICE_DIRECT_MIN", SL_SETTING_SIZE, "0", 0, UINT64_C(1) << 62,
           "pieces at least this large are messages of their own; 0: all packed")
SL_SETTING(SLOTS, "SLUICE_SLOTS", SL_SETTING_U32, "3", 2, 8, "staging slots in rotation")
SL_SETTING(STAGING_MAX, "SLUICE_STAGING_MAX", SL_SETTING_SIZE, "4Gi", 65536, UINT64_C(1) << 50,
           "most bytes of staging memory of a rank")
SL_SETTING(HOST_STAGING_MAX, "SLUICE_HOST_STAGING_MAX", SL_SETTING_SIZE, "64Mi", 8388608, UINT64_C(1) << 40,
           "cuda: most pinned memory that pageable buffers are staged through; no more than 64Mi is used")
SL_SETTING(MAX_CTAS, "SLUICE_MAX_CTAS", SL_SETTING_U32, "16", 1, 1024,
           "cuda: multiprocessors that kernels of ours and NCCL may use")
SL_SETTING(LOG, "SLUICE_LOG", SL_SETTING_LEVEL, "warn", 0, 0, "log level: error, warn, info, debug or trace")
