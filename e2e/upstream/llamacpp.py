"""Serves a GGUF file with the llama.cpp of the package xllamacpp, until SIGTERM.

    python llamacpp.py FILE CONTEXT [embeddings [rank]]

It prints "listening on URL". Four requests share the context. With "embeddings" it computes vectors, too, and with
"rank" it rates documents.
"""

import os
import signal
import sys

import xllamacpp

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # also in the threads of the server
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_ctx = int(sys.argv[2])
params.n_parallel = 4
params.endpoint_metrics = True
if "embeddings" in sys.argv[3:]:
    params.embedding = True
    pooling = xllamacpp.llama_pooling_type
    params.pooling_type = pooling.LLAMA_POOLING_TYPE_RANK if "rank" in sys.argv[4:] else pooling.LLAMA_POOLING_TYPE_MEAN
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
print("listening on", server.listening_address, flush=True)
signal.sigwait({signal.SIGTERM})
os._exit(0)
