"""Serves a GGUF file with the llama.cpp of the package xllamacpp, until SIGTERM.

    python llamacpp.py FILE CONTEXT      prints "listening on URL"; four requests share the context
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
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
print("listening on", server.listening_address, flush=True)
signal.sigwait({signal.SIGTERM})
os._exit(0)
