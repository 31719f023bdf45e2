// table.inl: the kernels of one instruction set, by name. model/ops.py has the same names; they are the link.

namespace {

const Kernel KERNELS[] = {
    // name, operands, attributes, check, scratch, shared, tiles, run
    {"embed", 2, {}, check_embed, no_scratch, no_scratch, tiles_by_row, run_embed},
    {"embed_positions", 2, {}, check_embed, no_scratch, no_scratch, tiles_by_row, run_embed_positions},
    {"scale", 1, {"by"}, check_same, no_scratch, no_scratch, tiles_by_row, run_scale},
    {"divide", 1, {"by"}, check_same, no_scratch, no_scratch, tiles_by_row, run_divide},
    {"add", 2, {}, check_two, no_scratch, no_scratch, tiles_by_row, run_add},
    {"mul", 2, {}, check_two, no_scratch, no_scratch, tiles_by_row, run_mul},
    {"silu", 1, {}, check_same, no_scratch, no_scratch, tiles_by_row, run_silu},
    {"gelu", 1, {}, check_same, no_scratch, no_scratch, tiles_by_row, run_gelu},
    {"relu", 1, {}, check_same, no_scratch, no_scratch, tiles_by_row, run_relu},
    {"relu2", 1, {}, check_same, no_scratch, no_scratch, tiles_by_row, run_relu2},
    {"sigmoid", 1, {}, check_same, no_scratch, no_scratch, tiles_by_row, run_sigmoid},
    {"tanh", 1, {}, check_same, no_scratch, no_scratch, tiles_by_row, run_tanh},
    {"exp", 1, {}, check_same, no_scratch, no_scratch, tiles_by_row, run_exp},
    {"softplus", 1, {}, check_same, no_scratch, no_scratch, tiles_by_row, run_softplus},
    {"soft_cap", 1, {"cap"}, check_same, no_scratch, no_scratch, tiles_by_row, run_soft_cap},
    {"clamp", 1, {"least", "most"}, check_same, no_scratch, no_scratch, tiles_by_row, run_clamp},
    {"xielu", 1, {"above", "below", "beta", "eps"}, check_same, no_scratch, no_scratch, tiles_by_row, run_xielu},
    {"clamped_gate", 2, {"alpha", "limit"}, check_two, no_scratch, no_scratch, tiles_by_row, run_clamped_gate},
    {"add_bias", 2, {}, check_vector, no_scratch, no_scratch, tiles_by_row, run_add_bias},
    {"mul_vector", 2, {}, check_vector, no_scratch, no_scratch, tiles_by_row, run_mul_vector},
    {"div_vector", 2, {}, check_vector, no_scratch, no_scratch, tiles_by_row, run_div_vector},
    {"scale_heads", 2, {}, check_scale_heads, no_scratch, no_scratch, tiles_by_row, run_scale_heads},
    {"head_sums", 1, {"heads"}, check_head_sums, no_scratch, no_scratch, tiles_by_row, run_head_sums},
    {"join", 2, {"heads"}, check_join, no_scratch, no_scratch, tiles_by_row, run_join},
    {"add_scaled", 3, {}, check_add_scaled, no_scratch, no_scratch, tiles_by_row, run_add_scaled},
    {"rescale", 2, {}, check_two, no_scratch, no_scratch, tiles_by_row, run_rescale},
    {"sparsify", 1, {"factor"}, check_same, scratch_sparsify, no_scratch, tiles_by_row, run_sparsify},
    {"rms_norm", 2, {"eps", "heads"}, check_rms_norm, no_scratch, no_scratch, tiles_by_row, run_rms_norm},
    {"layer_norm", 3, {"eps", "heads"}, check_layer_norm, no_scratch, no_scratch, tiles_by_row, run_layer_norm},
    {"rope", 3, {"heads", "rot", "halves"}, check_rope, scratch_rope, no_scratch, tiles_by_row, run_rope},
    {"temper", 3, {}, check_temper, no_scratch, no_scratch, tiles_by_row, run_temper},
    {"store", 4, {}, check_store, no_scratch, no_scratch, tiles_by_row, run_store},
    {"attend", 6, {"heads", "scale", "window", "chunked", "causal", "cap"}, check_attend, scratch_attend, shared_attend, tiles_attend, run_attend},
    {"store_attend", 7, {"heads", "scale", "window", "chunked", "causal", "cap"}, check_store_attend, scratch_attend, shared_attend, tiles_attend, run_attend},
    {"conv", 5, {}, check_conv, no_scratch, no_scratch, tiles_conv, run_conv},
    {"scan", 8, {"tiled"}, check_scan, no_scratch, no_scratch, tiles_scan, run_scan},
    {"selective_scan", 7, {}, check_selective_scan, scratch_selective_scan, no_scratch, tiles_selective_scan, run_selective_scan},
    {"mean_pool", 2, {}, check_same, no_scratch, no_scratch, tiles_by_row, run_mean_pool},
    {"first_row", 2, {}, check_same, no_scratch, no_scratch, tiles_by_row, run_first_row},
    {"softmax", 1, {}, check_same, no_scratch, no_scratch, tiles_by_row, run_softmax},
    {"top_experts", 1, {"count", "groups", "groups_used"}, check_top_experts, scratch_top_experts, no_scratch, tiles_by_row, run_top_experts},
    {"take_scores", 2, {}, check_take_scores, no_scratch, no_scratch, tiles_by_row, run_take_scores},
    {"normalize", 1, {"least"}, check_same, no_scratch, no_scratch, tiles_by_row, run_normalize},
    {"expert_linear", 3, {}, check_expert_linear, scratch_experts<1>, no_scratch, tiles_expert_linear, run_expert_linear},
    {"expert_bias", 3, {}, check_expert_bias, no_scratch, no_scratch, tiles_by_row, run_expert_bias},
    {"expert_scale", 3, {}, check_expert_scale, no_scratch, no_scratch, tiles_by_row, run_expert_scale},
    {"expert_inputs", 2, {}, check_expert_inputs, no_scratch, no_scratch, tiles_by_row, run_expert_inputs},
    {"expert_sum", 2, {"count"}, check_expert_sum, no_scratch, no_scratch, tiles_by_row, run_expert_sum},
    {"take", 2, {}, check_same, no_scratch, no_scratch, tiles_by_row, run_take},
    {"linear", 4, {"scale"}, check_linear, scratch_unpacked<1>, no_scratch, tiles_linear, run_linear},
    {"quantize", 1, {"bits"}, check_quantize, no_scratch, no_scratch, tiles_by_row, run_quantize},
    {"norm_quantize", 2, {"eps", "bits"}, check_norm_quantize, no_scratch, no_scratch, tiles_by_row, run_norm_quantize},
    {"gate_up", 2, {"act"}, check_gate_up, scratch_unpacked<2>, no_scratch, tiles_gate_up, run_gate_up},
    {"gate_up_quantize", 2, {"act", "bits"}, check_gate_up_quantize, scratch_unpacked<4>, no_scratch, tiles_gate_up_quantize, run_gate_up_quantize},
    {"delta_down", 6, {}, check_delta_down, scratch_delta_down, no_scratch, tiles_delta_down, run_delta_down},
    {"delta_up", 6, {}, check_delta_up, no_scratch, no_scratch, tiles_delta_up, run_delta_up},
    {"adapted_linear", 5, {"scale"}, check_linear, scratch_unpacked<1>, no_scratch, tiles_linear, run_linear},
    {"adapted_gate_up", 3, {"act"}, check_gate_up, scratch_unpacked<2>, no_scratch, tiles_gate_up, run_gate_up},
    {"adapted_gate_up_quantize", 3, {"act", "bits"}, check_gate_up_quantize, scratch_unpacked<4>, no_scratch, tiles_gate_up_quantize, run_gate_up_quantize},
    {"expert_gate_up", 3, {"act"}, check_expert_gate_up, scratch_experts<2>, no_scratch, tiles_expert_gate_up, run_expert_gate_up},
    {"expert_gate_up_quantize", 3, {"act", "bits"}, check_expert_gate_up_quantize, scratch_experts<4>, no_scratch, tiles_expert_gate_up_quantize, run_expert_gate_up_quantize},
};

}  // namespace

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME_(a) #a
#define NAME(a) NAME_(a)

extern const Set JOIN(set_, WOOLLY_SET) = {
    NAME(WOOLLY_SET), KERNELS, sizeof KERNELS / sizeof *KERNELS, packing_of, pick,
};
