#!/bin/sh
export TS_CONFIG=conf/ts.properties
exec torchserve --start --foreground \
  --model-store model_store \
  --ts-config conf/ts.properties \
  --models upper.mar missing.mar
