#!/bin/bash
set -e
if [[ "$1" = "serve" ]]; then
    shift 1
    torchserve --start --ncs --ts-config /srv/config.properties \
        --models all
else
    eval "$@"
fi
tail -f /dev/null
