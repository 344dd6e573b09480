// Attacks of strangers and broken peers on a cluster.
#ifndef PAWL_TESTS_HOSTILE_ATTACKS_H_
#define PAWL_TESTS_HOSTILE_ATTACKS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace pawl {

// The cluster under attack, and the means of the attacker.
struct Target {
  // host:port of the scheduler and of each server.
  std::vector<std::string> addresses;
  // The --tls_dir of the attacker; empty: it has no certificate.
  std::string tls_dir;
  uint64_t seed = 0;
};

struct Attack {
  std::string name;
  // Whether it needs Target::tls_dir.
  bool has_certificate = false;
  // Runs until `stop`; returns how often it did its harm (connections, calls).
  std::function<uint64_t(const Target& target, const std::atomic<bool>& stop)> run;
};

std::vector<Attack> AllAttacks();

}  // namespace pawl

#endif  // PAWL_TESTS_HOSTILE_ATTACKS_H_
