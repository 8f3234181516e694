"""Make a GGUF with random weights that llama.cpp loads in milliseconds.

For tests of the engine's machinery: queues, slots, cancel, counters, UTF-8. The vocabulary is one
token per byte plus a few control tokens, so a random model answers in random bytes, which is the
hardest case for a text stream. Nothing it says means anything.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

BOS, EOS, UNK, IM_START, IM_END = 1, 2, 0, 3, 4
N_SPECIAL = 5
N_VOCAB = N_SPECIAL + 256
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n{% if not enable_thinking %}<think></think>{% endif %}"
)


def write_tiny_llama(
    path: Path,
    *,
    seed: int = 1,
    n_ctx: int = 4096,
    n_embd: int = 64,
    n_layer: int = 2,
    n_ff: int = 128,
    architecture: str = "llama",
    template: str | None = TEMPLATE,
    never_ends: bool = True,
    pooling: gguf.PoolingType | None = None,
    is_half: bool = False,
) -> Path:
    """Write a random model of llama's shape and return its path.

    Args:
        pooling: makes it an embedder.
        never_ends: give the control tokens a logit of 0, which the best of 256 random ones beats.
        is_half: store the matrices of the layers as F16 instead of F32.
    """
    rng = np.random.default_rng(seed)
    n_head, head_dim = 4, n_embd // 4
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_name("tiny-random")
    writer.add_context_length(n_ctx)
    writer.add_embedding_length(n_embd)
    writer.add_block_count(n_layer)
    writer.add_feed_forward_length(n_ff)
    writer.add_head_count(n_head)
    writer.add_head_count_kv(n_head)
    writer.add_rope_dimension_count(head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    if pooling is not None:
        writer.add_pooling_type(pooling)
    _add_tokenizer(writer, template)

    def add(name: str, *shape: int, scale: float = 0.08) -> None:
        kind = np.float16 if is_half and name.startswith("blk.") else np.float32
        writer.add_tensor(name, (rng.standard_normal(shape) * scale).astype(kind))

    add("token_embd.weight", N_VOCAB, n_embd, scale=1.0)
    output = rng.standard_normal((N_VOCAB, n_embd)).astype(np.float32)
    if never_ends:
        output[:N_SPECIAL] *= 0.0
        output[N_SPECIAL:] *= 2.0
    writer.add_tensor("output.weight", output)
    writer.add_tensor("output_norm.weight", np.ones(n_embd, dtype=np.float32))
    for layer in range(n_layer):
        at = f"blk.{layer}."
        writer.add_tensor(at + "attn_norm.weight", np.ones(n_embd, dtype=np.float32))
        writer.add_tensor(at + "ffn_norm.weight", np.ones(n_embd, dtype=np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"{at}{name}.weight", n_embd, n_embd)
        add(at + "ffn_gate.weight", n_ff, n_embd)
        add(at + "ffn_up.weight", n_ff, n_embd)
        add(at + "ffn_down.weight", n_embd, n_ff)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter, template: str | None) -> None:
    special = [b"<unk>", b"<s>", b"</s>", b"<|im_start|>", b"<|im_end|>"]
    control = int(gguf.TokenType.CONTROL)
    kinds = [int(gguf.TokenType.UNKNOWN), control, control, control, control]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*special, *(f"<0x{byte:02X}>".encode() for byte in range(256))])
    writer.add_token_scores([0.0] * N_VOCAB)
    writer.add_token_types([*kinds, *([int(gguf.TokenType.BYTE)] * 256)])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_unk_token_id(UNK)
    writer.add_uint32("tokenizer.ggml.eot_token_id", IM_END)
    writer.add_add_bos_token(value=True)
    writer.add_add_space_prefix(value=False)
    if template is not None:
        writer.add_chat_template(template)
