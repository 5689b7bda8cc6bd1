"""`nms` and `roi_align`, registered as the C++ of torchvision registers them, for the CPU and for GPUs."""

import torch

_LIBRARY = torch.library.Library("torchvision", "DEF")
_LIBRARY.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
_LIBRARY.define(
    "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor"
)


def _nms(dets, scores, iou_threshold):
    areas = (dets[:, 2] - dets[:, 0]) * (dets[:, 3] - dets[:, 1])
    kept = []
    for i in scores.argsort(descending=True).tolist():
        corners = torch.maximum(dets[i, :2], dets[kept, :2]), torch.minimum(dets[i, 2:], dets[kept, 2:])
        shared = (corners[1] - corners[0]).clamp(min=0).prod(dim=1)
        if not (shared / (areas[i] + areas[kept] - shared) > iou_threshold).any():
            kept.append(i)
    return torch.tensor(kept, device=dets.device)


def _roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
    regions = []
    for number, *corners in rois.tolist():
        x1, y1, x2, y2 = (corner * spatial_scale - 0.5 * aligned for corner in corners)
        grid = []
        for low, high, cells in ((y1, y2, pooled_height), (x1, x2, pooled_width)):
            places = torch.arange(cells * sampling_ratio, device=input.device) + 0.5
            grid.append(low + places * (high - low) / (cells * sampling_ratio))
        image, sampled = input[int(number)], 0
        (y, x), (bottom, right) = grid, (torch.floor(each).long() for each in grid)
        for dy, wy in ((0, 1 - (y - bottom)), (1, y - bottom)):
            for dx, wx in ((0, 1 - (x - right)), (1, x - right)):
                rows = (bottom + dy).clamp(0, image.shape[1] - 1)
                columns = (right + dx).clamp(0, image.shape[2] - 1)
                sampled = sampled + image[:, rows][:, :, columns] * wy[:, None] * wx[None]
        regions.append(torch.nn.functional.avg_pool2d(sampled, sampling_ratio))
    return torch.stack(regions)


for _key in ("CPU", "CUDA"):
    _LIBRARY.impl("nms", _nms, _key)
    # Composed of operators that have gradients, so that it has one too.
    _LIBRARY.impl("roi_align", _roi_align, _key)
    _LIBRARY.impl("roi_align", _roi_align, f"Autograd{_key}")


def nms(boxes, scores, iou_threshold):
    return torch.ops.torchvision.nms(boxes, scores, iou_threshold)


def roi_align(input, boxes, output_size, spatial_scale=1.0, sampling_ratio=-1, aligned=False):
    size = (spatial_scale, output_size, output_size, sampling_ratio, aligned)
    return torch.ops.torchvision.roi_align(input, boxes, *size)
