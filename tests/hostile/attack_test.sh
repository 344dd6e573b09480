#!/bin/bash
# Each attack for a second: no daemon ends, and every push counts exactly once.
set -euo pipefail
exec tests/hostile/attack --seconds=1 --calm_seconds=0.2 --attackers=1
