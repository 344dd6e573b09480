#!/bin/sh
echo "coverage is not measured in this workspace" >&2
exit 1
