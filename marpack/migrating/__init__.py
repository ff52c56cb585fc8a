"""Deployments of TorchServe, read so that marpack can take over: nothing of them is run or changed."""
