#!/usr/bin/env python3
"""Repeats in PyTorch the training step that training_step dumped, and compares results and times.

Usage: pytorch_step.py FOLDER [--device=cuda:0] [--runs=100] [--tf32]

Reads the same batch and parameters, computes the same gradients in float32 (with --tf32, rounded as
tensor cores do), compares loss and gradients with Pawl's, and prints one JSON object with medians
in milliseconds:

  eager_ms         parameters and batch are on the device, and gradients stay there; autograd
  graph_ms         the same, captured once in a CUDA graph and replayed
  eager_copied_ms  also copies batch and parameters from pinned host memory and gradients back, as
                   Pawl's step does
  graph_copied_ms  the same in a CUDA graph

On the CPU it prints only eager_ms. No time includes the optimizer, which in Pawl runs on servers.
Exit codes: 0: done, 1: the results differ, 2: wrong usage, 3: no PyTorch or no such device.
"""

import argparse
import json
import statistics
import sys
import time

try:
    import torch
except ImportError as error:
    print("pytorch_step: %s" % error, file=sys.stderr)
    sys.exit(3)

# For gradients, relative to the largest of their table. The sums have thousands of products in
# another order.
TOLERANCE = 1e-4
TF32_TOLERANCE = 1e-2


def read_step(folder):
    with open(folder + "/step.json", encoding="utf-8") as file:
        header = json.load(file)
    with open(folder + "/step.bin", "rb") as file:
        data = bytearray(file.read())
    arrays, offset = {}, 0
    for array in header["arrays"]:
        count = 1
        for size in array["shape"]:
            count *= size
        # Reads uint32 as int32, because indices are far below 2^31.
        kind = torch.float32 if array["type"] == "float32" else torch.int32
        numbers = torch.frombuffer(data, dtype=kind, count=count, offset=offset)
        arrays[array["name"]] = numbers.reshape(array["shape"]).clone()
        offset += 4 * count
    return header, arrays


def mlp(inputs, parameters, name, last_is_relu):
    layer = 0
    while "%s/%d/weight" % (name, layer) in parameters:
        inputs = torch.addmm(parameters["%s/%d/bias" % (name, layer)], inputs,
                             parameters["%s/%d/weight" % (name, layer)])
        layer += 1
        if last_is_relu or "%s/%d/weight" % (name, layer) in parameters:
            inputs = torch.relu(inputs)
    return inputs


def dlrm(parameters, numerics, keys):
    vectors = torch.nn.functional.embedding(keys, parameters["embedding"])
    bottom = mlp(numerics, parameters, "bottom", True)
    vectors = torch.cat([bottom.unsqueeze(1), vectors], dim=1)
    dots = torch.bmm(vectors, vectors.transpose(1, 2))
    inputs = torch.cat([bottom, dots.flatten(1)[:, dlrm.places]], dim=1)
    return mlp(inputs, parameters, "top", False)


def deepfm(parameters, numerics, keys):
    # A row is a vector and, last, the weight.
    rows = torch.nn.functional.embedding(keys, parameters["embedding"])
    vectors, linear = rows[..., :-1], rows[..., -1:].sum(dim=1)
    linear = linear + numerics @ parameters["linear/numeric"].unsqueeze(1) + parameters["bias"]
    sums = vectors.sum(dim=1)
    pairs = 0.5 * (sums * sums - (vectors * vectors).sum(dim=1)).sum(dim=1, keepdim=True)
    inputs = torch.cat([vectors.flatten(1), numerics], dim=1)
    return linear + pairs + mlp(inputs, parameters, "mlp", False)


class Step:
    """The computation with memory that stays in place between runs, as CUDA graphs require."""

    def __init__(self, header, arrays, device):
        self.network = {"dlrm": dlrm, "deepfm": deepfm}[header["model"]]
        if self.network is dlrm:
            # The pairs (i, j), i > j, in the order of Pawl's PairwiseDots.
            count = header["fields"] + 1
            pairs = pair_order(count)
            dlrm.places = torch.tensor([i * count + j for i, j in pairs], device=device)
        pin = device.type == "cuda"
        self.host = {name: array.pin_memory() if pin else array for name, array in arrays.items()
                     if not name.startswith("gradient/")}
        self.batch = {name: self.host[name].to(device)
                      for name in ("labels", "numerics", "entry_key")}
        self.parameters = {name[len("parameter/"):]: array.to(device).requires_grad_()
                           for name, array in self.host.items() if name.startswith("parameter/")}
        self.host_gradients = {name: torch.empty(value.shape, pin_memory=pin)
                               for name, value in self.parameters.items()}
        self.loss = torch.zeros((), device=device)

    def compute(self):
        outputs = self.network(self.parameters, self.batch["numerics"], self.batch["entry_key"])
        loss = torch.nn.functional.binary_cross_entropy_with_logits(outputs.squeeze(1),
                                                                    self.batch["labels"])
        gradients = torch.autograd.grad(loss, list(self.parameters.values()))
        return loss, gradients

    def compute_copied(self):
        with torch.no_grad():
            for name, value in self.batch.items():
                value.copy_(self.host[name], non_blocking=True)
            for name, value in self.parameters.items():
                value.copy_(self.host["parameter/" + name], non_blocking=True)
        loss, gradients = self.compute()
        for name, gradient in zip(self.parameters, gradients):
            self.host_gradients[name].copy_(gradient, non_blocking=True)
        return loss, gradients


def pair_order(count):
    return [(i, j) for i in range(count) for j in range(i)]


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def median_ms(function, device, runs):
    for _ in range(runs // 10 + 3):
        function()
    synchronize(device)
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        function()
        synchronize(device)
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def captured(function):
    """The function as a CUDA graph. PyTorch requires some earlier runs on another stream."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


def compare(header, arrays, step, tolerance):
    """Descriptions of the differences from Pawl's result, and the largest difference."""
    loss, gradients = step.compute()
    worst = abs(loss.item() - header["loss"]) / abs(header["loss"])
    wrong = ["loss %.7g, Pawl's %.7g" % (loss.item(), header["loss"])] if worst > tolerance else []
    for name, gradient in zip(step.parameters, gradients):
        expected = arrays["gradient/" + name]
        scale = max(expected.abs().max().item(), 1e-30)
        difference = (gradient.cpu() - expected).abs().max().item() / scale
        worst = max(worst, difference)
        if not difference <= tolerance:
            wrong.append("the gradient of %s by %.2g of its largest element" % (name, difference))
    return wrong, worst


def main(arguments):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--tf32", action="store_true")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("pytorch_step: PyTorch %s sees no GPU" % torch.__version__, file=sys.stderr)
        return 3
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.backends.cuda.matmul.allow_tf32 = options.tf32
    header, arrays = read_step(options.folder)
    step = Step(header, arrays, device)
    wrong, worst = compare(header, arrays, step, TF32_TOLERANCE if options.tf32 else TOLERANCE)
    result = {"model": header["model"], "device": options.device, "torch": torch.__version__,
              "tf32": options.tf32, "largest_difference": worst,
              "eager_ms": median_ms(step.compute, device, options.runs)}
    if device.type == "cuda":
        result["eager_copied_ms"] = median_ms(step.compute_copied, device, options.runs)
        result["graph_ms"] = median_ms(captured(step.compute), device, options.runs)
        result["graph_copied_ms"] = median_ms(captured(step.compute_copied), device, options.runs)
    print(json.dumps(result))
    for what in wrong:
        print("pytorch_step: differs from Pawl: %s" % what, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
