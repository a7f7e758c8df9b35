"""The models with real data: those that top-1 accuracy is measured on, and those with other tasks.

Every split calibrates on samples that are not evaluated.
"""

from __future__ import annotations

from scripts.benchmarks.models.evaluated import REPOSITORY, ZOO, EvaluatedModel, Split

MODELS = (
    EvaluatedModel("digits", REPOSITORY / "calib_data", "digits.onnx", Split("calib.npz"), Split("test.npz")),
    EvaluatedModel(
        "squeezenet1.1",
        ZOO,
        "models/squeezenet1.1.onnx",
        Split("data/imagenet_sample", "::10"),
        Split("data/imagenet_sample", leave_out=10),
    ),
    EvaluatedModel(
        "mobilenetv2_tin202",
        ZOO,
        "models/mobilenetv2_tin202.onnx",
        Split("data/tin202/calib", "::5", 121),
        Split("data/tin202/test", "::2"),
    ),
    EvaluatedModel(
        "resnet50v2s3_tin202",
        ZOO,
        "models/resnet50v2s3_tin202.onnx",
        Split("data/tin202/calib", "::5", 121),
        Split("data/tin202/test", "::4"),
    ),
    EvaluatedModel(
        "cifar10_resnet20",
        ZOO,
        "models/cifar10_resnet20.onnx",
        Split("data/cifar10.npz", samples=256),
        Split("data/cifar10.npz[input=x_test,label=y_test]"),
    ),
    EvaluatedModel(
        "mlkws_ds_cnn_l",
        ZOO,
        "models/mlkws_ds_cnn_l.onnx",
        Split("data/speech_commands_350.npz", "::4"),
        Split("data/speech_commands_350.npz", leave_out=4),
    ),
    EvaluatedModel(
        "squeezenet1.1_caffe",
        ZOO,
        "models/squeezenet1.1_caffe.onnx",
        Split("data/imagenet_sample", "::10"),
        Split("data/imagenet_sample", leave_out=10),
    ),
    EvaluatedModel(
        "mobilenet_v1_0.25_224",
        ZOO,
        "models/mobilenet_v1_0.25_224.onnx",
        Split("data/imagenet_sample", "::10"),
        Split("data/imagenet_sample", leave_out=10),
    ),
    EvaluatedModel(
        "cifar10_resnet32",
        ZOO,
        "models/cifar10_resnet32.onnx",
        Split("data/cifar10.npz", samples=256),
        Split("data/cifar10.npz[input=x_test,label=y_test]"),
    ),
    EvaluatedModel(
        "mlperftiny_resnet8",
        ZOO,
        "models/mlperftiny_resnet8.onnx",
        Split("data/cifar10.npz", samples=256),
        Split("data/cifar10.npz[input=x_test,label=y_test]"),
    ),
    EvaluatedModel(
        "mlperftiny_kws_dscnn",
        ZOO,
        "models/mlperftiny_kws_dscnn.onnx",
        Split("data/kws01_mfcc.npz", "::4"),
        Split("data/kws01_mfcc.npz", leave_out=4),
    ),
    EvaluatedModel(
        "mlkws_dnn_l",
        ZOO,
        "models/mlkws_dnn_l.onnx",
        Split("data/speech_commands_350.npz", "::4"),
        Split("data/speech_commands_350.npz", leave_out=4),
    ),
    EvaluatedModel(
        "mnist_8",
        ZOO,
        "models/mnist_8.onnx",
        Split("data/mnist_t10k.npz", "::20"),
        Split("data/mnist_t10k.npz", "1::2"),
    ),
)

_COCO = (Split("data/coco256/calib"), Split("data/coco256/val"))
TASK_MODELS = (
    EvaluatedModel("mlperftiny_vww96", ZOO, "models/mlperftiny_vww96.onnx", *_COCO),
    EvaluatedModel("fastestdet", ZOO, "models/fastestdet.onnx", *_COCO),
    EvaluatedModel("yolox_nano", ZOO, "models/yolox_nano.onnx", Split("data/coco256/calib", "::2"), _COCO[1]),
    EvaluatedModel("ultraface_rfb320", ZOO, "models/unlabelled/ultraface_rfb320.onnx", *_COCO),
    EvaluatedModel("yunet_n_320", ZOO, "models/unlabelled/yunet_n_320.onnx", *_COCO),
    EvaluatedModel(
        "super_resolution_10",
        ZOO,
        "models/super_resolution_10.onnx",
        Split("data/imagenet_sample", "::50"),
        Split("data/imagenet_sample", "1::50"),
    ),
    EvaluatedModel(
        "deeplabv3_mnv2_voc",
        ZOO,
        "models/deeplabv3_mnv2_voc.onnx",
        Split("data/coco256/calib", "::5"),
        _COCO[1],
    ),
)
"""Those whose answers top-1 does not measure."""
