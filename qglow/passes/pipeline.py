"""All passes over graphs, and the pipeline after which a graph is canonical."""

from __future__ import annotations

from qglow.core.passes import Pass, PassLog, Pipeline
from qglow.graph.graph import Graph
from qglow.graph.verifier import verify_graph
from qglow.passes.arithmetic_to_affine import ArithmeticToAffine
from qglow.passes.batchnorm_to_affine import BatchnormToAffine
from qglow.passes.conv_to_gemm import ConvToGemm
from qglow.passes.dequantize_constants import DequantizeConstants
from qglow.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions
from qglow.passes.eliminate_dead_nodes import EliminateDeadNodes
from qglow.passes.expert_products import ExpertProducts
from qglow.passes.fold_batchnorm import FoldBatchnorm
from qglow.passes.fold_constants import FoldConstants
from qglow.passes.fuse_activation import FuseActivation
from qglow.passes.join_affine import JoinAffine
from qglow.passes.matmul_add_to_gemm import MatmulAddToGemm
from qglow.passes.merge_products import MergeProducts
from qglow.passes.min_max_to_clip import MinMaxToClip
from qglow.passes.pad_into_conv import PadIntoConv
from qglow.passes.pad_into_pool import PadIntoPool
from qglow.passes.raise_channel_shuffle import RaiseChannelShuffle
from qglow.passes.raise_gelu import RaiseGelu
from qglow.passes.raise_hard_swish import RaiseHardSwish
from qglow.passes.raise_layer_norm import RaiseLayerNorm
from qglow.passes.raise_sigmoid import RaiseSigmoid
from qglow.passes.raise_softmax import RaiseSoftmax
from qglow.passes.raise_swish import RaiseSwish
from qglow.passes.share_tables import ShareTables
from qglow.passes.simplify_algebra import SimplifyAlgebra
from qglow.passes.simplify_slices import SimplifySlices
from qglow.passes.sink_reshapes import SinkReshapes
from qglow.passes.sink_transposes import SinkTransposes

ALL_PASSES: tuple[type[Pass[Graph]], ...] = (
    FoldConstants,
    SimplifyAlgebra,
    SimplifySlices,
    MinMaxToClip,
    RaiseGelu,
    RaiseHardSwish,
    RaiseSoftmax,
    RaiseLayerNorm,
    RaiseChannelShuffle,
    EliminateDeadNodes,
    EliminateCommonSubexpressions,
    SinkTransposes,
    SinkReshapes,
    PadIntoConv,
    PadIntoPool,
    ConvToGemm,
    MatmulAddToGemm,
    ExpertProducts,
    ArithmeticToAffine,
    JoinAffine,
    FoldBatchnorm,
    BatchnormToAffine,
    RaiseSigmoid,
    RaiseSwish,
    FuseActivation,
    DequantizeConstants,
    MergeProducts,
    ShareTables,
)


def canonical_pipeline() -> Pipeline[Graph]:
    """The passes that make a graph canonical, the form that is profiled, quantized and compiled.

    Dead nodes and common subexpressions are removed first: a reader that is dead or repeats another is a
    second user of its operand, which prevents fusion. Sharing exposes further simplifications.
    """
    return Pipeline(
        (
            FoldConstants(),
            EliminateDeadNodes(),
            SimplifyAlgebra(),
            EliminateCommonSubexpressions(),
            MinMaxToClip(),
            SimplifyAlgebra(),
            RaiseGelu(),
            RaiseSigmoid(),
            RaiseHardSwish(),
            RaiseSoftmax(),
            RaiseLayerNorm(),
            RaiseChannelShuffle(),
            SimplifySlices(),
            SinkTransposes(),
            SinkReshapes(),
            PadIntoConv(),
            PadIntoPool(),
            ConvToGemm(),
            MatmulAddToGemm(),
            SinkReshapes(),
            MatmulAddToGemm(),
            ExpertProducts(),
            ArithmeticToAffine(),
            FoldBatchnorm(),
            BatchnormToAffine(),
            JoinAffine(),
            RaiseSwish(),
            FuseActivation(),
            EliminateDeadNodes(),
        )
    )


def lowering_pipeline(observed: bool = False) -> Pipeline[Graph]:
    """Return the passes over a graph, float or int8, before its lowering. No bit of a result changes.

    observed: whether each value is seen, and each constant exchanged, by itself; products stay apart then.
    """
    merging = () if observed else (MergeProducts(),)
    return Pipeline((DequantizeConstants(), *merging, ShareTables()))


def canonicalize(graph: Graph, log: PassLog | None = None) -> Graph:
    """A canonical copy: the same function, inputs and outputs under the same names.

    `log` receives what was rewritten and what was not, with reasons.
    """
    result = graph.copy()
    canonical_pipeline().run(result, verify_graph, log)
    return result
