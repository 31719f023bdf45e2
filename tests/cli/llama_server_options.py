"""The options of llama-server, each with its aliases, a value where it takes one, and what becomes of it here.

docs/coming-from.md shows this list, in tables that `python -m tests.cli.llama_server_options` prints. An option that is
new in llama.cpp is a line here, and a word in a table of woolly/cli/llama_argv.py.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass

from woolly.cli.commands import COMMANDS
from woolly.cli.compat_argv import translate
from woolly.errors import RequestError

OPTIONS = """
taken    -m --model                           model.gguf
taken    -hf -hfr --hf-repo                   owner/repo:Q4_K_M
taken    -hff --hf-file                       file.gguf
taken    -md --model-draft --spec-draft-model draft.gguf
taken    -hfd -hfrd --hf-repo-draft --spec-draft-hf   owner/draft
taken    -a --alias                           name
taken    -t --threads                         4
taken    -c --ctx-size                        4096
taken    -n --predict --n-predict             128
taken    -np --parallel                       2
taken    -ctk --cache-type-k -ctv --cache-type-v   q8_0
taken    --lora                               adapter.gguf
taken    --host                               127.0.0.1
taken    --port                               9000
taken    --api-key                            a-key-of-thirty-two-characters-x
taken    --api-key-file                       keys.txt
taken    --ssl-key-file                       key.pem
taken    --ssl-cert-file                      cert.pem
taken    -to --timeout                        60
taken    --models-dir                         models
taken    --models-max                         2
taken    --sleep-idle-seconds                 60
taken    --chat-template-kwargs               {"a":1}
taken    -rea --reasoning                     off
taken    --pooling                            mean
taken    --offline
taken    --log-file                           log.txt
taken    -s --seed                            7
taken    --temp --temperature                 0.5
taken    --top-k                              20
taken    --top-p                              0.5
taken    --min-p                              0.1
taken    --top-nsigma --top-n-sigma           1
taken    --xtc-probability                    0.1
taken    --xtc-threshold                      0.1
taken    --typical --typical-p                0.9
taken    --repeat-last-n                      32
taken    --repeat-penalty                     1.1
taken    --presence-penalty                   0.5
taken    --frequency-penalty                  0.5
taken    --dry-multiplier                     0.8
taken    --dry-base                           1.75
taken    --dry-allowed-length                 2
taken    --dry-penalty-last-n                 64
taken    --dynatemp-range                     0.5
taken    --dynatemp-exp                       1
taken    --mirostat                           2
taken    --mirostat-lr                        0.1
taken    --mirostat-ent                       5
noted    -tb --threads-batch                  4
noted    -C --cpu-mask -Cb --cpu-mask-batch   f
noted    -Cr --cpu-range -Crb --cpu-range-batch   0-3
noted    --cpu-strict --cpu-strict-batch      1
noted    --prio --prio-batch                  2
noted    --poll --poll-batch                  50
noted    --numa                               distribute
noted    -b --batch-size                      512
noted    -ub --ubatch-size                    512
noted    --keep                               0
noted    --swa-full
noted    -kvu --kv-unified -no-kvu --no-kv-unified
noted    -ctxcp --ctx-checkpoints --swa-checkpoints   8
noted    -cpent --checkpoint-every-n-tokens   8192
noted    -cram --cache-ram                    8192
noted    --cache-reuse                        256
noted    --cache-prompt --no-cache-prompt
noted    -dt --defrag-thold                   0.1
noted    --no-context-shift
noted    -fa --flash-attn                     on
noted    -e --escape --no-escape
noted    --perf --no-perf
noted    --warmup --no-warmup
noted    --mlock --mmap --no-mmap -dio --direct-io -ndio --no-direct-io
noted    --repack -nr --no-repack
noted    --no-host
noted    --check-tensors
noted    -kvo --kv-offload -nkvo --no-kv-offload
noted    --op-offload --no-op-offload
noted    -bs --backend-sampling
noted    --rpc                                host:50052
noted    -dev --device                        none
noted    -ngl --gpu-layers --n-gpu-layers     99
noted    -sm --split-mode                     layer
noted    -ts --tensor-split                   3,1
noted    -mg --main-gpu                       0
noted    -ot --override-tensor                exps=CPU
noted    -cmoe --cpu-moe
noted    -ncmoe --n-cpu-moe                   4
noted    -fit --fit                           on
noted    -fitt --fit-target                   1024
noted    -fitc --fit-ctx                      4096
noted    -cb --cont-batching -nocb --no-cont-batching
noted    --threads-http                       4
noted    --reuse-port
noted    --slots --no-slots
noted    --props
noted    --metrics
noted    --webui --no-webui --ui --no-ui
noted    --webui-config --webui-config-file --ui-config --ui-config-file   {}
noted    --webui-mcp-proxy --no-webui-mcp-proxy --ui-mcp-proxy --no-ui-mcp-proxy
noted    --embedding --embeddings
noted    --rerank --reranking
noted    --slot-save-path                     slots
noted    -sps --slot-prompt-similarity        0.5
noted    --models-autoload --no-models-autoload
noted    --tags                               a,b
noted    --media-path                         pictures
noted    --no-mmproj --mmproj-auto --no-mmproj-auto --mmproj-offload --no-mmproj-offload
noted    --image-min-tokens --image-max-tokens   64
noted    --jinja --no-jinja
noted    --reasoning-format                   deepseek
noted    --reasoning-budget-message           enough
noted    --no-prefill-assistant
noted    --no-skip-chat-parsing
noted    --draft --draft-n --draft-max --spec-draft-n-max   16
noted    --draft-min --draft-n-min --spec-draft-n-min   0
noted    --draft-p-min --draft-p-split --spec-draft-p-min --spec-draft-p-split   0.8
noted    -cd --ctx-size-draft                 4096
noted    -td --threads-draft -tbd --threads-batch-draft   4
noted    -ctkd --cache-type-k-draft -ctvd --cache-type-v-draft   q8_0
noted    -devd --device-draft                 none
noted    -ngld --gpu-layers-draft --n-gpu-layers-draft   99
noted    -otd --override-tensor-draft         exps=CPU
noted    -cmoed --cpu-moe-draft
noted    -ncmoed --n-cpu-moe-draft            4
noted    --spec-type                          ngram-simple
noted    --spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits --spec-ngram-check-rate   8
noted    --spec-default
noted    --spec-replace                       one two
noted    -lcs --lookup-cache-static -lcd --lookup-cache-dynamic   cache.bin
noted    -v --verbose --log-verbose
noted    -lv --verbosity --log-verbosity      3
noted    --log-disable
noted    --log-colors                         off
noted    --log-prefix --no-log-prefix
noted    --log-timestamps --no-log-timestamps
noted    --verbose-prompt
refused  -mu --model-url                      https://host/model.gguf
refused  -dr --docker-repo                    gemma3
refused  -hft --hf-token                      hf_x
refused  -hfv -hfrv --hf-repo-v               owner/voice
refused  -hffv --hf-file-v                    voice.gguf
refused  -mv --model-vocoder                  voice.gguf
refused  --tts-use-guide-tokens
refused  -mm --mmproj                         mmproj.gguf
refused  -mmu --mmproj-url                    https://host/mmproj.gguf
refused  --models-preset                      models.ini
refused  --lora-scaled                        adapter.gguf:0.5
refused  --lora-init-without-apply
refused  --control-vector                     vector.gguf
refused  --control-vector-scaled              vector.gguf:0.5
refused  --control-vector-layer-range         1 9
refused  --override-kv                        a=int:1
refused  --rope-scaling                       yarn
refused  --rope-scale --rope-freq-base --rope-freq-scale   2
refused  --yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast   1
refused  --context-shift
refused  --attention                          causal
refused  --samplers                           top_k;temperature
refused  --sampler-seq --sampling-seq         kt
refused  --adaptive-target --adaptive-decay   0.5
refused  --dry-sequence-breaker               none
refused  --ignore-eos
refused  --logit-bias                         15+1
refused  --grammar                            root::="a"
refused  --grammar-file                       g.gbnf
refused  -j --json-schema                     {}
refused  -jf --json-schema-file               s.json
refused  -r --reverse-prompt                  User:
refused  -sp --special
refused  --spm-infill
refused  --chat-template                      chatml
refused  --chat-template-file                 t.jinja
refused  --skip-chat-parsing
refused  --prefill-assistant
refused  --reasoning-budget                   256
refused  --path                               public
refused  --api-prefix                         /llm
refused  --tools                              all
refused  -cl --cache-list
refused  --list-devices
refused  --completion-bash
refused  --version
refused  --usage
refused  --license
refused  --embd-bge-small-en-default --embd-e5-small-en-default --embd-gte-small-default --embd-gemma-default
refused  --fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default --fim-qwen-7b-spec --fim-qwen-14b-spec
refused  --fim-qwen-30b-default --gpt-oss-20b-default --gpt-oss-120b-default
refused  --vision-gemma-4b-default --vision-gemma-12b-default
"""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of llama-server: its aliases, values for it, and whether it is taken, noted or refused here."""

    fate: str
    names: tuple[str, ...]
    values: tuple[str, ...]


def _option(line: str) -> Option:
    fate, *words = line.split()
    names = tuple(word for word in words if word.startswith("-"))
    return Option(fate, names, tuple(words[len(names) :]))


LIST = tuple(map(_option, OPTIONS.strip().splitlines()))
BASE = ("serve", "-hf", "owner/repo")


def ours(option: Option, name: str) -> list[str]:
    """The words that an option becomes, by one of its names."""
    return translate([*BASE, name, *option.values], COMMANDS)


def page() -> str:
    """The tables of docs/coming-from.md."""
    return "\n\n".join(
        (
            _table("in Woolly", "in llama-server", "taken", _our_option),
            _table("no effect here, because", "in llama-server", "noted", reason),
            _table("refused; instead", "in llama-server", "refused", _advice),
        )
    )


def _table(left: str, right: str, fate: str, key: Callable[[Option, str], str]) -> str:
    """The options of a fate, together those that have one key."""
    names: dict[str, list[str]] = {}
    for option in LIST:
        for name in option.names if option.fate == fate else ():
            names.setdefault(key(option, name), []).append(f"`{name}`")
    rows = (f"| {text} | {', '.join(them)} |" for text, them in names.items())
    return "\n".join([f"| {left} | {right} |", "| --- | --- |", *rows])


def _our_option(option: Option, name: str) -> str:
    words = ours(option, name)[1:]
    if name in words:
        return "the same word"
    return f"`{next((word for word in reversed(words) if word.startswith('--')), '')}`"


def reason(option: Option, name: str) -> str:
    """Why an option has no effect, as its note says."""
    with contextlib.redirect_stderr(io.StringIO()) as note:
        ours(option, name)
    return note.getvalue().removeprefix(f"woolly: note: {name} means nothing here: ").rstrip("\n")


def _advice(option: Option, name: str) -> str:
    try:
        ours(option, name)
    except RequestError as error:
        return error.suggestion
    raise AssertionError(f"{name} is not refused")


if __name__ == "__main__":
    print(page())
