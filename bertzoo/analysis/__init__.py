"""Looking into models: what they attend to, hold, know and cost."""

from bertzoo._lazy import lazy_import_hooks

# Imported on first use: what counts parameters needs no matplotlib, and what draws needs no model.
_HOMES = {
    "ablate_each_head": "heads",
    "ablate_heads": "heads",
    "activation_bytes": "comparison",
    "anisotropy_figure": "charts",
    "attention_maps": "attention",
    "attention_html": "attention",
    "attribution_figure": "charts",
    "values_by_head_figure": "figures",
    "calibration_figure": "charts",
    "cka_matrix": "representations",
    "compare_costs": "comparison",
    "cost_comparison_figure": "charts",
    "encoder_flops": "bertzoo.models.flops",
    "errors_by_confidence_figure": "charts",
    "flops_by_part": "bertzoo.models.flops",
    "gradient_times_attention": "attribution",
    "attention_head_figure": "figures",
    "masked_lm_head_flops": "bertzoo.models.flops",
    "attention_heads_figure": "figures",
    "heat_map": "figures",
    "integrated_gradients": "attribution",
    "layer_anisotropy": "representations",
    "layer_vectors": "representations",
    "layer_curves_figure": "charts",
    "linear_cka": "representations",
    "pca_figure": "charts",
    "mean_pairwise_cosine": "representations",
    "least_important_heads": "heads",
    "occlusion": "attribution",
    "pca": "representations",
    "predict_with_confidence": "confidence",
    "probe": "probing",
    "probe_figure": "charts",
    "prune_heads": "heads",
    "pruning_figure": "charts",
    "Whitening": "representations",
    "word_vectors": "representations",
}

__all__ = sorted(_HOMES)
__getattr__, __dir__ = lazy_import_hooks(__name__, _HOMES)
