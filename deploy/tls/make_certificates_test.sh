#!/bin/bash
set -euo pipefail
exec python3 "$(dirname "$0")/make_certificates_test.py" -v
