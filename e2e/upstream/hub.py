# Gets files of models with huggingface_hub, which the environment configures, and prints what came of it
# as JSON: the snapshot, or the name of the error.
#
#   hub.py ID REVISION FILE...     the files one by one
#   hub.py ID REVISION             all small files at once
#   hub.py                         a check of the cache
import json
import sys

import huggingface_hub as hub


def get(model, revision, *names):
    if not names:
        return hub.snapshot_download(model, revision=revision, ignore_patterns=["*.safetensors"])
    paths = [hub.hf_hub_download(model, name, revision=revision) for name in names]
    return paths[-1][: -len(names[-1]) - 1]


if len(sys.argv) == 1:
    cache = hub.scan_cache_dir()
    answer = {
        "warnings": [str(w) for w in cache.warnings],
        "models": {r.repo_id: {v.commit_hash: [sorted(v.refs), sorted(f.file_name for f in v.files)] for v in r.revisions} for r in cache.repos},
    }
else:
    try:
        answer = {"path": get(*sys.argv[1:])}
    except Exception as e:
        answer = {"error": type(e).__name__}
print(json.dumps(answer))
