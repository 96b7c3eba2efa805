"""Runs a load tool with its default settings, and prints what it has measured, as JSON.

    python load.py TOOL URL MODEL

The result is a list with one object per request: seconds to the first token (first), mean seconds between
tokens (gap), seconds of the whole request (whole), tokens of the prompt as the service has reported them
(prompt, absent if the tool does not say), and tokens of the answer (answer).
"""

import asyncio
import glob
import json
import os
import subprocess
import sys

REQUESTS = 8
ANSWER = 40  # tokens
NAME = "whence-tiny"


def run(command, *args, **env):
    """Runs a command of the environment, and shows its output if it fails."""
    path = os.path.join(os.path.dirname(sys.executable), command)
    done = subprocess.run([path, *args], env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{command} ended with status {done.returncode}:\n{done.stdout}")


def guidellm(url, model):
    standin = os.path.join(os.path.dirname(os.path.abspath(__file__)), "standin")  # of PyTorch
    run(
        "guidellm", "run", "--backend", f"kind=openai_http,target={url}", "--profile", "kind=synchronous",
        "--constraint", f"kind=max_requests,count={REQUESTS}", "--tokenizer", f"kind=huggingface_auto,model={model}",
        "--data", f"kind=synthetic_text,prompt_tokens=200,output_tokens={ANSWER}", "--output", "kind=json,path=guidellm.json",
        PYTHONPATH=standin, PYTHONDONTWRITEBYTECODE="1", USE_TORCH="0",
    )
    with open("guidellm.json") as file:
        requests = json.load(file)["benchmarks"][0]["requests"]["successful"]
    for r in requests:
        t, answer = r["info"]["timings"], r["output_metrics"]["total_tokens"]
        yield {
            "first": t["first_token_iteration"] - t["request_start"],
            "gap": (t["last_token_iteration"] - t["first_token_iteration"]) / (answer - 1),
            "whole": t["request_end"] - t["request_start"],
            "prompt": r["input_metrics"]["total_tokens"],
            "answer": answer,
        }


def aiperf(url, model):
    run(
        "aiperf", "profile", "-m", NAME, "--url", url, "--streaming", "--tokenizer", model,
        "--request-count", str(REQUESTS), "--osl", str(ANSWER), "--ui", "none",
    )
    (file,) = glob.glob("artifacts/*/profile_export.jsonl")
    for line in open(file):
        record = json.loads(line)
        if record.get("error"):
            sys.exit(f"a request of aiperf failed: {record['error']}")
        m = {name: metric["value"] for name, metric in record["metrics"].items()}
        yield {
            "first": m["time_to_first_token"] / 1e3,
            "gap": sum(m["inter_chunk_latency"]) / 1e3 / (m["usage_completion_tokens"] - 1),
            "whole": m["request_latency"] / 1e3,
            "prompt": m["usage_prompt_tokens"],
            "answer": m["usage_completion_tokens"],
        }


def genai_bench(url, model):
    run(
        "genai-bench", "benchmark", "--api-backend", "vllm", "--api-base", url, "--api-key", "unused", "--task", "text-to-text",
        "--api-model-name", NAME, "--model-tokenizer", model, "--num-concurrency", "1", "--traffic-scenario", f"D(200,{ANSWER})",
        "--max-time-per-run", "10", "--max-requests-per-run", str(REQUESTS), "--experiment-base-dir", ".", "--experiment-folder-name", "results",
    )
    (file,) = glob.glob("results/D*.json")
    with open(file) as text:
        requests = json.load(text)["individual_request_metrics"]
    for r in requests:
        yield {"first": r["ttft"], "gap": r["tpot"], "whole": r["e2e_latency"], "answer": r["num_output_tokens"]}


def vllm(url, _, chat):
    """The functions with which `vllm bench serve` makes its requests. The package itself needs a GPU."""
    import importlib.util

    import aiohttp

    file = os.path.join(os.path.dirname(sys.executable), "..", "endpoint_request_func.py")
    spec = importlib.util.spec_from_file_location("endpoint_request_func", file)
    functions = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = functions  # for its dataclasses
    spec.loader.exec_module(functions)
    send = functions.async_request_openai_chat_completions if chat else functions.async_request_openai_completions
    path = "/v1/chat/completions" if chat else "/v1/completions"

    async def measure():
        rows = []
        async with aiohttp.ClientSession() as session:
            for i in range(REQUESTS):
                asked = functions.RequestFuncInput(
                    prompt=f"{i} " + "A fox in the harbor. " * 30, api_url=url + path, prompt_len=0, output_len=ANSWER, model=NAME, ignore_eos=True
                )
                out = await send(asked, session)
                assert out.success, out.error
                rows.append({
                    "first": out.ttft, "gap": sum(out.itl) / (out.output_tokens - 1), "whole": out.latency, "prompt": out.prompt_len, "answer": out.output_tokens,
                })
        return rows

    return asyncio.run(measure())


TOOLS = {
    "guidellm": guidellm,
    "aiperf": aiperf,
    "genai-bench": genai_bench,
    "vllm-bench-chats": lambda url, model: vllm(url, model, chat=True),
    "vllm-bench-completions": lambda url, model: vllm(url, model, chat=False),
}

if __name__ == "__main__":
    print(json.dumps(list(TOOLS[sys.argv[1]](sys.argv[2], sys.argv[3]))))
