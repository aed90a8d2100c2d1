"""A tiny DeepSeek V4.1 of NeMo AutoModel, quick on a CPU, and the documents that it is tried on."""

import torch
from nemo_automodel.components.models.common import BackendConfig
from nemo_automodel.components.models.deepseek_v41.config import (
    DeepseekV41Config,
    DeepseekV41TextConfig,
    DeepseekV41VisionConfig,
)
from nemo_automodel.components.models.deepseek_v41.model import DeepseekV41ForCausalLM

VOCABULARY = 11
LENGTHS = (1, 3, 9, 17)


def tiny_model(seed: int, layers: int = 6) -> DeepseekV41ForCausalLM:
    """Compressed layers of ratios 2 and 1 whose scores have few ties, in float32, without the hashed n-grams."""
    schedule = schedule_of(layers)
    text = DeepseekV41TextConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        moe_intermediate_size=8,
        num_hidden_layers=layers,
        num_attention_heads=2,
        head_dim=8,
        qk_rope_head_dim=4,
        q_lora_rank=8,
        o_lora_rank=4,
        o_groups=2,
        n_routed_experts=4,
        num_experts_per_tok=2,
        sliding_window=4,
        index_n_heads=2,
        index_head_dim=8,
        index_topk=4,
        candidate_topk_blocks=2,
        hc_mult=2,
        hc_sinkhorn_iters=2,
        engram_layer_ids=[],
        num_nextn_predict_layers=0,
        dspark_target_layer_ids=[],
        initializer_range=0.08,
        max_position_embeddings=128,
        dtype="float32",
        **schedule,
    )
    backend = BackendConfig(attn="eager", linear="torch", rms_norm="torch_fp32", experts="torch", dispatcher="torch")
    vision = DeepseekV41VisionConfig(num_hidden_layers=1, hidden_size=16, num_attention_heads=1, intermediate_size=8)
    torch.manual_seed(seed)
    config = DeepseekV41Config(text_config=text, vision_config=vision, dtype="float32")
    model = DeepseekV41ForCausalLM(config, backend=backend)
    model.initialize_weights(torch.device("cpu"), dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():  # a gate that starts at zero would hide what is behind it
                parameter.normal_(std=0.2)
    return model


def schedule_of(layers: int) -> dict[str, object]:
    """Which layers compress, by how much, and which of them share keys and scores."""
    if layers == 40:
        return {}  # as released
    return {
        "compress_ratios": [0, 0, 2, 2, 1, 1],
        "kv_source_layer_ids": [2, 4],
        "index_source_layer_ids": [2, 4],
        "candidate_source_layer_id": 4,
    }
