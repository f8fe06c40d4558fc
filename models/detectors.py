"""Detectors of torchvision: sizes, loops and branches that only the data decides, inside one model.

They are not in the catalog, since nothing of them is committed in full and their outputs need a comparison of their own: how many
boxes there are is a result. Weights are random, but no toss-up: `spread` scales the last layer of each head until scores differ
by far more than rounding does, so two right implementations find the same boxes.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from models.inputs import Array

if TYPE_CHECKING:
    import torch

FOLDER = Path(__file__).resolve().parent / "tiny" / "detectors"
Size = Literal["full", "half", "small"]
CLASSES = {"full": 91, "half": 91, "small": 5}
THRESHOLD = (
    0.3  # of scores: more than torchvision's own, so that few and well separated boxes remain, and none on a grey image
)


@dataclass(frozen=True, slots=True)
class Head:
    """The last layer of a head (or layers: a pattern of names' ends): its results get the deviation ``spread`` around ``mean``.

    ``background`` is added to the first of each ``classes`` results, if it is not 0.
    """

    layer: str
    spread: float
    mean: float = 0.0
    background: float = 0.0
    classes: int = 0


@dataclass(frozen=True, slots=True)
class Detector:
    """One detector.

    build    of a size and (height, width)
    heads    in the order in which each depends on those before it
    outputs  names for the graph's outputs
    """

    name: str
    build: Callable[[Size, int, int], torch.nn.Module]
    heads: Callable[[Size], tuple[Head, ...]]
    outputs: tuple[str, ...] = ("boxes", "scores", "labels")

    def module(self, size: Size = "full", height: int = 800, width: int = 1344, seed: int = 0) -> torch.nn.Module:
        """In eval mode, of one image [3, height, width] from 0 to 1, with outputs named and ordered as ``outputs``."""
        import torch

        from models.perturb import perturb
        from models.wrap import Detections

        torch.manual_seed(seed)
        model = Detections(self.build(size, height, width), self.outputs)
        example = torch.from_numpy(picture(height, width, seed=seed))
        perturb(model, {"image": example}, seed)
        draw = torch.Generator().manual_seed(seed)
        for head in self.heads(size):
            spread(model, example, head, draw)
        return model


def picture(height: int, width: int, contrast: float = 1.0, seed: int = 0) -> Array:
    """Rectangles of random colours, some over others, of all sizes, on grey; ``contrast`` 0 leaves the grey alone."""
    rng = np.random.default_rng(seed)
    image = np.full((3, height, width), 0.45, np.float32)
    for _ in range(40):
        y, x = rng.integers(0, height - 1), rng.integers(0, width - 1)
        h, w = rng.integers(2, max(3, height // 2)), rng.integers(2, max(3, width // 2))
        image[:, y : y + h, x : x + w] = rng.random((3, 1, 1))
    image += 0.05 * rng.standard_normal(image.shape)
    return np.asarray(np.clip(0.45 + contrast * (image - 0.45), 0, 1), np.float32)


def spread(model: torch.nn.Module, image: torch.Tensor, head: Head, draw: torch.Generator) -> None:
    """Scale and shift the layers of that name until their results on ``image`` are as ``head`` says, all together."""
    import torch

    layers = [m for n, m in model.named_modules() if re.search(head.layer + "$", n) and hasattr(m, "weight")]
    found: list[torch.Tensor] = []
    hooks = [m.register_forward_hook(lambda _m, _i, o: found.append(o.detach().flatten())) for m in layers]
    with torch.no_grad():
        model(image)
        for hook in hooks:
            hook.remove()
        values = torch.cat(found)
        scale = head.spread / values.std()
        shift = head.mean - scale * values.mean()
        for layer in layers:
            weight, bias = layer.weight, layer.bias
            assert isinstance(weight, torch.Tensor) and isinstance(bias, torch.Tensor)
            weight.mul_(scale)
            bias.mul_(scale).add_(shift).add_(torch.randn(bias.shape, generator=draw), alpha=0.3 * head.spread)
            if head.background:
                bias.view(-1, head.classes)[:, 0].add_(head.background)


def export(
    detector: Detector,
    path: Path,
    size: Size = "full",
    height: int = 800,
    width: int = 1344,
    exporter: Literal["dynamo", "torchscript"] = "torchscript",
    opset: int | None = None,
    module: torch.nn.Module | None = None,
) -> None:
    """Write ``path``, for images of that size; in small size as the repository holds it, in FOLDER."""
    import torch

    from models.tiny import strip

    model = module or detector.module(size, height, width)
    options: dict[str, Any] = {
        "dynamo": exporter == "dynamo",
        "opset_version": opset or (20 if exporter == "dynamo" else 17),
    }
    if exporter == "dynamo":
        options |= {"external_data": False, "verbose": False}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        example = torch.from_numpy(picture(height, width))
        torch.onnx.export(
            model, (example,), str(path), input_names=["image"], output_names=list(detector.outputs), **options
        )
    if size == "small":
        strip(path)


def _sizes(height: int, width: int) -> dict[str, int]:
    return {"min_size": min(height, width), "max_size": max(height, width)}


def _resnet_fpn(size: Size, levels: tuple[int, ...] = (1, 2, 3, 4), p6p7: bool = False) -> torch.nn.Module:
    """ResNet-50 and 256 channels; in half size ResNet-18 without its last stage, which holds three quarters of its weights, and 128."""
    from torchvision.models import resnet18, resnet50
    from torchvision.models.detection.backbone_utils import BackboneWithFPN
    from torchvision.ops.feature_pyramid_network import LastLevelP6P7

    body, channels = (resnet50(), 256) if size == "full" else (resnet18(), 128)
    levels = levels if size == "full" else levels[:-1]
    widths = [(256 if size == "full" else 64) << (n - 1) for n in levels]
    stages = {f"layer{n}": str(i) for i, n in enumerate(levels)}
    more = LastLevelP6P7(channels, channels) if p6p7 else None
    return BackboneWithFPN(body, stages, widths, channels, extra_blocks=more)


def _anchors(levels: int, scales: int = 1) -> torch.nn.Module:
    from torchvision.models.detection.anchor_utils import AnchorGenerator

    sizes = tuple(tuple(int((32 << i) * 2 ** (k / 3)) for k in range(scales)) for i in range(levels))
    return AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * levels)


def _tiny_fpn(channels: int) -> torch.nn.Module:
    """Two levels, and torchvision's third of their last."""
    from torch import nn
    from torchvision.models.detection.backbone_utils import BackboneWithFPN

    def block(i: int, o: int, stride: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())

    body = nn.Sequential()
    for name, layer in (("stem", block(3, 6, 4)), ("a", block(6, 8, 2)), ("b", block(8, 12, 2))):
        body.add_module(name, layer)
    return BackboneWithFPN(body, {"a": "0", "b": "1"}, [8, 12], channels)


def _rcnn(kind: str) -> Callable[[Size, int, int], torch.nn.Module]:
    def build(size: Size, height: int, width: int) -> torch.nn.Module:
        from torchvision.models import detection
        from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
        from torchvision.models.detection.mask_rcnn import MaskRCNNHeads

        classes = 2 if kind == "KeypointRCNN" else CLASSES[size]
        sizes = _sizes(height, width)
        if size == "small":
            return _small_rcnn(kind, classes, sizes)
        hidden, levels = (1024, 5) if size == "full" else (256, 4)
        backbone = _resnet_fpn(size)
        more: dict[str, Any] = {}
        if kind == "MaskRCNN":
            more = {"mask_head": MaskRCNNHeads(backbone.out_channels, (backbone.out_channels,) * 4, 1)}
            more["mask_predictor"] = _mask_predictor(backbone.out_channels, classes)
        return getattr(detection, kind)(
            backbone, **sizes, rpn_anchor_generator=_anchors(levels), box_score_thresh=THRESHOLD,
            box_head=TwoMLPHead(backbone.out_channels * 7 * 7, hidden), box_predictor=FastRCNNPredictor(hidden, classes),
            **more,
        )  # fmt: skip

    return build


def _mask_predictor(channels: int, classes: int) -> torch.nn.Module:
    from torchvision.models.detection.mask_rcnn import MaskRCNNPredictor

    return MaskRCNNPredictor(channels, channels, classes)


def _small_rcnn(kind: str, classes: int, sizes: dict[str, int]) -> torch.nn.Module:
    from torchvision.models import detection
    from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
    from torchvision.models.detection.mask_rcnn import MaskRCNNHeads
    from torchvision.models.detection.rpn import AnchorGenerator
    from torchvision.ops import MultiScaleRoIAlign

    names, width = ["0", "1"], 8
    more: dict[str, Any] = {}
    if kind == "MaskRCNN":
        more = {
            "mask_roi_pool": MultiScaleRoIAlign(names, 6, 2), "mask_head": MaskRCNNHeads(width, [width], 1),
            "mask_predictor": _mask_predictor(width, classes),
        }  # fmt: skip
    return getattr(detection, kind)(
        _tiny_fpn(width), **sizes,
        rpn_anchor_generator=AnchorGenerator(((12,), (24,), (40,)), ((0.5, 1.0, 2.0),) * 3),
        rpn_pre_nms_top_n_test=40, rpn_post_nms_top_n_test=20, box_detections_per_img=8, box_score_thresh=0.5,
        box_roi_pool=MultiScaleRoIAlign(names, 3, 2), box_head=TwoMLPHead(width * 9, 16),
        box_predictor=FastRCNNPredictor(16, classes), **more,
    )  # fmt: skip


def _retinanet(size: Size, height: int, width: int) -> torch.nn.Module:
    from torchvision.models.detection import RetinaNet

    backbone = _resnet_fpn(size, (2, 3, 4), p6p7=True)
    anchors = _anchors(5 if size == "full" else 4, scales=3)
    return RetinaNet(backbone, CLASSES[size], **_sizes(height, width), anchor_generator=anchors, score_thresh=THRESHOLD)


def _fcos(size: Size, height: int, width: int) -> torch.nn.Module:
    from torchvision.models.detection import FCOS
    from torchvision.models.detection.anchor_utils import AnchorGenerator

    backbone = _resnet_fpn(size, (2, 3, 4), p6p7=True)
    levels = 5 if size == "full" else 4
    anchors = AnchorGenerator(tuple((8 << i,) for i in range(levels)), ((1.0,),) * levels)
    return FCOS(backbone, CLASSES[size], **_sizes(height, width), anchor_generator=anchors, score_thresh=THRESHOLD)


def _ssdlite(size: Size, height: int, width: int) -> torch.nn.Module:
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large

    return ssdlite320_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=CLASSES[size], score_thresh=THRESHOLD
    )


def _ssd(size: Size, height: int, width: int) -> torch.nn.Module:
    from torchvision.models.detection import ssd300_vgg16

    return ssd300_vgg16(weights=None, weights_backbone=None, num_classes=CLASSES[size], score_thresh=THRESHOLD)


def _rcnn_heads(kind: str) -> Callable[[Size], tuple[Head, ...]]:
    def heads(size: Size) -> tuple[Head, ...]:
        classes = 2 if kind == "KeypointRCNN" else CLASSES[size]
        found = (
            Head("rpn.head.cls_logits", 2),
            Head("rpn.head.bbox_pred", 0.3),
            Head("box_predictor.cls_score", 2, background=2, classes=classes),
            Head("box_predictor.bbox_pred", 1),
        )
        more = {
            "MaskRCNN": (Head("mask_predictor.mask_fcn_logits", 3),),
            "KeypointRCNN": (Head("kps_score_lowres", 3),),
        }
        return found + more.get(kind, ())

    return heads


def _dense(kind: str) -> Callable[[Size], tuple[Head, ...]]:
    """Scores are sigmoids of thousands of logits: few of them may be above the threshold."""

    def heads(size: Size) -> tuple[Head, ...]:
        if kind == "ssd":
            last = r"\.module_list\.\d(\.1)?"
            return (
                Head(rf"\.classification_head{last}", 2, background=6, classes=CLASSES[size]),
                Head(rf"\.regression_head{last}", 1),
            )
        logits, boxes = (
            Head("head.classification_head.cls_logits", 1.5, mean=-8),
            Head("regression_head.bbox_(reg|pred)", 0.5),
        )
        return (logits, boxes, Head("bbox_ctrness", 1.5)) if kind == "fcos" else (logits, boxes)

    return heads


DETECTORS: tuple[Detector, ...] = (
    Detector("maskrcnn", _rcnn("MaskRCNN"), _rcnn_heads("MaskRCNN"), ("boxes", "labels", "scores", "masks")),
    Detector("fasterrcnn", _rcnn("FasterRCNN"), _rcnn_heads("FasterRCNN"), ("boxes", "labels", "scores")),
    Detector(
        "keypointrcnn", _rcnn("KeypointRCNN"), _rcnn_heads("KeypointRCNN"),
        ("boxes", "labels", "scores", "keypoints", "keypoints_scores"),
    ),
    Detector("retinanet", _retinanet, _dense("retinanet")),
    Detector("fcos", _fcos, _dense("fcos")),
    Detector("ssd", _ssd, _dense("ssd")),
    Detector("ssdlite", _ssdlite, _dense("ssd")),
)  # fmt: skip


def find(name: str) -> Detector:
    """The detector of that name; KeyError lists the names there are."""
    for detector in DETECTORS:
        if detector.name == name:
            return detector
    raise KeyError(f"no detector {name!r}: {', '.join(d.name for d in DETECTORS)}")
