#include "client_lib/security/admission/connection_ledger.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kMiB = 1 << 20;
constexpr milliseconds kInterval{100};

class ConnectionLedgerTest : public ::testing::Test {
 protected:
  // A connection as the kernel and gRPC see it.
  struct Connection {
    size_t slot = 0;
    ConnectionLedger::Bytes bytes;
    ConnectionLedger::Streams streams;
  };

  ConnectionLedger& ledger() {
    if (ledger_ == nullptr)
      ledger_ = std::make_unique<ConnectionLedger>(limits_, std::make_shared<PeerQuotas>(quotas_));
    return *ledger_;
  }
  // `uri`: of the peer's certificate.
  void Connect(const std::string& name, const std::string& uri = "worker", bool trusted = false) {
    ConnectAs(name, PeerName({uri}, "10.0.0.1"), trusted);
  }
  void ConnectAs(const std::string& name, const std::string& peer, bool trusted = false) {
    connections_[name] = Connection();
    connections_[name].slot = ledger().Add(name, now_);
    ledger().Identify(name, peer, trusted, now_);
  }
  // Another connection than `name` that shares its slot.
  std::string SharesSlotOf(const std::string& name) {
    for (const auto& [other, connection] : connections_) {
      if (other != name && connection.slot == connections_[name].slot) return other;
    }
    return "";
  }
  // The gate decides on `calls` calls.
  void Pass(const std::string& name, uint64_t calls = 1) {
    ledger().counts(connections_[name].slot)->passed += calls;
    connections_[name].streams.started += calls;
  }
  void Refuse(const std::string& name, uint64_t calls) {
    ledger().counts(connections_[name].slot)->refused += calls;
    connections_[name].streams.started += calls;
    connections_[name].streams.ended += calls;
  }
  void Receive(const std::string& name, uint64_t bytes) {
    connections_[name].bytes.received += bytes;
  }
  // A message has arrived; the call has not ended.
  void Admit(const std::string& name, uint64_t bytes) { ledger().OnAdmitted(name, bytes); }
  void End(const std::string& name, uint64_t calls = 1) {
    connections_[name].streams.ended += calls;
  }
  // Looks at all connections after the interval.
  void Look() {
    now_ += kInterval;
    processor_seconds_ += load_ * Seconds(kInterval);
    for (const auto& [name, connection] : connections_) {
      ledger().OnBytes(name, connection.bytes, processor_seconds_, now_);
      if (ledger().WantsStreams(name)) ledger().OnStreams(name, connection.streams, now_);
    }
  }
  // Receives as much as a slow link delivers before the deadline of a client's pushes.
  void ReceivePushes(const std::string& name) {
    for (int look = 0; look < 27; ++look) {
      Receive(name, 32 * kMiB / 27);
      Look();
    }
  }
  // Their connections.
  std::vector<std::string> Offenders() {
    std::vector<std::string> names;
    for (const ConnectionLedger::Offender& offender : ledger().TakeOffenders())
      names.push_back(offender.connection);
    return names;
  }
  // Metadata that never ends, 1 MiB in each interval.
  int LooksUntilStrayOffence(const std::string& name) {
    return LooksUntilOffence([&] { Receive(name, kMiB); });
  }
  // `step` happens in each interval. 0: no offence.
  int LooksUntilOffence(const std::function<void()>& step) {
    for (int looks = 1; looks <= 100; ++looks) {
      step();
      Look();
      if (!Offenders().empty()) return looks;
    }
    return 0;
  }

  LedgerLimits limits_;
  PeerLimits quotas_;
  MonotonicTime now_{seconds(1000)};
  // Processors that the process uses.
  double load_ = 2;
  double processor_seconds_ = 100;
  std::unique_ptr<ConnectionLedger> ledger_;
  std::map<std::string, Connection> connections_;
};

using Names = std::vector<std::string>;

// Honest clients.

TEST_F(ConnectionLedgerTest, PushesOnASlowLinkAreNoOffence) {
  Connect("a");
  for (int step = 0; step < 20; ++step) {
    Pass("a", 8);
    for (int look = 0; look < 32; ++look) {
      Receive("a", kMiB);
      Look();
    }
    for (int i = 0; i < 8; ++i) Admit("a", 4 * kMiB);
    Receive("a", 300 << 10);
    End("a", 8);
    Look();
    EXPECT_EQ(Offenders(), Names());
  }
}

TEST_F(ConnectionLedgerTest, PushesWhoseDeadlinesExpireAreNoOffence) {
  Connect("a");
  for (int step = 0; step < 50; ++step) {
    Pass("a", 8);
    for (int look = 0; look < 10; ++look) {
      Receive("a", 3 * kMiB);
      Look();
    }
    End("a", 8);
    for (int look = 0; look < 10; ++look) Look();
    EXPECT_EQ(Offenders(), Names()) << step;
  }
}

TEST_F(ConnectionLedgerTest, PushesThatExpireAmongOthersAreNoOffence) {
  limits_.max_incomplete_bytes = 100 * kMiB;
  Connect("a");
  Pass("a", 8);
  for (int step = 0; step < 50; ++step) {
    ReceivePushes("a");
    End("a", 8);
    Pass("a", 8);
    EXPECT_EQ(Offenders(), Names()) << step;
  }
}

TEST_F(ConnectionLedgerTest, AbandonedPushesAmongOthersAreNoOffence) {
  limits_.max_incomplete_bytes = 100 * kMiB;
  Connect("a");
  Pass("a", 9);
  for (int step = 0; step < 50; ++step) {
    ReceivePushes("a");
    for (int i = 0; i < 6; ++i) ledger().OnAbandoned("a");
    End("a", 6);
    Pass("a", 6);
    EXPECT_EQ(Offenders(), Names()) << step;
  }
}

TEST_F(ConnectionLedgerTest, ProcessesOfOnePeerMayAllHaveTheirPushesInFlight) {
  constexpr int kProcesses = 40;
  for (int i = 0; i < kProcesses; ++i) {
    Connect(absl::StrCat(i));
    Pass(absl::StrCat(i), 8);
  }
  for (int look = 0; look < 31; ++look) {
    for (int i = 0; i < kProcesses; ++i) Receive(absl::StrCat(i), kMiB);
    Look();
  }
  EXPECT_EQ(Offenders(), Names());
}

TEST_F(ConnectionLedgerTest, RestOfAnExpiredPushOnASlowLinkIsNoOffence) {
  Connect("a");
  Pass("a");
  Receive("a", 4 * kMiB);
  Look();
  ledger().OnAbandoned("a");
  End("a");
  for (int look = 0; look < 40; ++look) {
    Receive("a", kMiB / 10);
    Look();
  }
  EXPECT_EQ(Offenders(), Names());
}

TEST_F(ConnectionLedgerTest, WrongCountsOfASlotEndWithItsConnection) {
  Connect("a");
  // It did not pass.
  Admit("a", 1);
  ledger().Sweep([](const std::string&) { return false; }, now_);
  connections_.clear();
  for (size_t i = 0; i < ConnectionLedger::kSlots; ++i) {
    Connect(absl::StrCat(i));
    Pass(absl::StrCat(i));
  }
  for (int look = 0; look < 20; ++look) {
    for (size_t i = 0; i < ConnectionLedger::kSlots; ++i) Receive(absl::StrCat(i), kMiB);
    Look();
  }
  EXPECT_EQ(Offenders(), Names());
}

TEST_F(ConnectionLedgerTest, CallThatDidNotPassOpensNoOthers) {
  limits_.max_incomplete_bytes = 100 * kMiB;
  for (size_t i = 0; i < ConnectionLedger::kSlots; ++i) Connect(absl::StrCat("b", i), "client");
  Connect("a");
  Admit("a", 1);
  connections_["a"].streams.started = 100;
  for (int look = 0; look < 20; ++look) {
    Receive("a", 10 * kMiB);
    Look();
  }
  EXPECT_EQ(Offenders(), Names());
}

TEST_F(ConnectionLedgerTest, CallsThatOnlySeemOpenHoldNoBytes) {
  limits_.max_incomplete_bytes = 100 * kMiB;
  Connect("a");
  // They have ended, but gRPC never told the services.
  Pass("a", 20);
  connections_["a"].streams.ended = 19;
  for (int look = 0; look < 3; ++look) {
    Receive("a", 60 * kMiB);
    Look();
  }
  EXPECT_EQ(Offenders(), Names());
}

TEST_F(ConnectionLedgerTest, OpenCallHoldsNoMoreThanTheLargestMessage) {
  limits_.max_incomplete_bytes = 80 * kMiB;
  // Nothing else is an offence.
  load_ = 0;
  Connect("a");
  Pass("a");
  for (int look = 0; look < 20; ++look) {
    // Much of it belongs to calls that have ended.
    Receive("a", 10 * kMiB);
    Look();
  }
  EXPECT_EQ(Offenders(), Names());
}

TEST_F(ConnectionLedgerTest, PingsAreNoOffence) {
  Connect("a");
  for (int look = 0; look < 60; ++look) {
    Receive("a", 10 << 10);
    Look();
  }
  EXPECT_EQ(Offenders(), Names());
}

TEST_F(ConnectionLedgerTest, BytesThatGrpcExplainsLateAreNoOffence) {
  Connect("a");
  for (int step = 0; step < 100; ++step) {
    Receive("a", 6 * kMiB);
    Look();
    Look();
    Pass("a");
    Look();
    Admit("a", 6 * kMiB);
    End("a");
    Look();
    EXPECT_EQ(Offenders(), Names()) << step;
  }
}

TEST_F(ConnectionLedgerTest, ProcessWithoutProcessorTimeClosesNothing) {
  load_ = 0.01;
  Connect("a");
  Receive("a", 4 * kMiB);
  connections_["a"].bytes.unread = 6 * kMiB;
  for (int look = 0; look < 50; ++look) Look();
  EXPECT_EQ(Offenders(), Names());
}

TEST_F(ConnectionLedgerTest, ProcessThatWasStoppedClosesNothing) {
  Connect("a");
  for (int stop = 0; stop < 10; ++stop) {
    Receive("a", 4 * kMiB);
    connections_["a"].bytes.unread = 6 * kMiB;
    Look();
    Look();
    now_ += seconds(10);
    processor_seconds_ += 10;
    Look();
    Pass("a");
    Look();
    Admit("a", 4 * kMiB);
    End("a");
    Look();
  }
  EXPECT_EQ(Offenders(), Names());
}

TEST_F(ConnectionLedgerTest, AcknowledgementsOfLargePullsAreNoOffence) {
  Connect("a");
  Pass("a");
  Admit("a", 100);
  for (int look = 0; look < 1000; ++look) {
    connections_["a"].bytes.sent += 100 * kMiB;
    Receive("a", 5 * kMiB);
    Look();
  }
  EXPECT_EQ(Offenders(), Names());
}

TEST_F(ConnectionLedgerTest, CallsOfAllStreamsThatExpireAtOnceAreNoOffence) {
  for (const char* const name : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
    Connect(name);
    Pass(name, 768);
    Receive(name, 8 * kMiB);
  }
  Look();
  for (const auto& [name, connection] : connections_) End(name, 768);
  for (const auto& [name, connection] : connections_) Receive(name, kMiB);
  Look();
  Look();
  EXPECT_EQ(Offenders(), Names());
}

// Attacks.

TEST_F(ConnectionLedgerTest, MetadataThatNeverEndsIsAnOffence) {
  Connect("a");
  Connect("b");
  connections_["a"].streams.started = 1;
  const int looks = LooksUntilStrayOffence("a");
  EXPECT_GE(looks, 8);
  EXPECT_LE(looks, 16);
}

TEST_F(ConnectionLedgerTest, MetadataThatGrpcIsSlowWithIsAnOffence) {
  Connect("a");
  Receive("a", kMiB);
  connections_["a"].bytes.unread = 6 * kMiB;
  for (int look = 0; look < 8; ++look) Look();
  EXPECT_EQ(Offenders(), Names());
  for (int look = 0; look < 8; ++look) Look();
  EXPECT_EQ(Offenders(), Names({"a"}));
}

TEST_F(ConnectionLedgerTest, CancelledCallsDoNotExcuseMetadata) {
  Connect("a");
  Pass("a", 5);
  End("a", 5);
  const int looks = LooksUntilStrayOffence("a");
  EXPECT_GT(looks, 0);
  EXPECT_LE(looks, 30);
}

TEST_F(ConnectionLedgerTest, OpenCallExcusesNoMoreThanItsMessage) {
  Connect("a");
  Pass("a");
  const int looks = LooksUntilStrayOffence("a");
  EXPECT_GT(looks, 64);
  EXPECT_LE(looks, 80);
}

TEST_F(ConnectionLedgerTest, OpenCallDoesNotExcuseMetadataThatGrpcIsSlowWith) {
  Connect("a");
  Pass("a");
  connections_["a"].bytes.unread = 6 * kMiB;
  int looks = 0;
  EXPECT_GT(LooksUntilOffence([&] {
              if (looks++ % 10 == 0) Receive("a", 20 * kMiB);
            }),
            0);
}

TEST_F(ConnectionLedgerTest, CompleteCallsDoNotExcuseMetadata) {
  Connect("a");
  const int looks = LooksUntilOffence([&] {
    Receive("a", kMiB);
    Pass("a");
    Admit("a", 1);
    End("a");
  });
  EXPECT_GT(looks, 0);
  EXPECT_LE(looks, 20);
}

TEST_F(ConnectionLedgerTest, CallsThatAreResetDoNotHideMessagesThatNeverEnd) {
  for (const bool is_abandoned : {false, true}) {
    const std::string name = is_abandoned ? "abandoned" : "reset";
    Connect(name, name);
    Pass(name, 64);
    const int looks = LooksUntilOffence([&] {
      Receive(name, 10 * kMiB);
      Pass(name, 16);
      for (int i = 0; is_abandoned && i < 16; ++i) ledger().OnAbandoned(name);
      End(name, 16);
    });
    EXPECT_GT(looks, 52) << name;
    EXPECT_LE(looks, 80) << name;
  }
}

TEST_F(ConnectionLedgerTest, OpenCallDoesNotExcuseConnectionsThatShareItsSlot) {
  for (size_t i = 0; i < ConnectionLedger::kSlots; ++i) Connect(absl::StrCat("a", i), "client");
  Connect("b");
  Pass(SharesSlotOf("b"));
  const int looks = LooksUntilStrayOffence("b");
  EXPECT_GT(looks, 0);
  EXPECT_LE(looks, 20);
}

TEST_F(ConnectionLedgerTest, MessagesThatNeverEndAreAnOffenceOfTheLargest) {
  limits_.max_incomplete_bytes = 100 * kMiB;
  Connect("a");
  Connect("b");
  Connect("c", "client");
  for (const char* const name : {"a", "b", "c"}) Pass(name, 4);
  for (int look = 0; look < 10; ++look) {
    Receive("a", 8 * kMiB);
    Receive("b", 2 * kMiB);
    Receive("c", 10 * kMiB);
    Look();
    ASSERT_EQ(Offenders(), Names()) << look;
  }
  Receive("a", kMiB);
  Look();
  EXPECT_EQ(Offenders(), Names({"a"}));
}

TEST_F(ConnectionLedgerTest, CallsThatAreResetPutThePeerInDebt) {
  quotas_.burst_tokens = 1000;
  quotas_.tokens_per_second = 100;
  Connect("a");
  Connect("b", "client");
  // The burst, and half of the debt of five seconds.
  Pass("a", 400);
  End("a", 400);
  Receive("a", kMiB);
  Look();
  EXPECT_EQ(Offenders(), Names());
  Pass("a", 100);
  End("a", 100);
  Receive("a", kMiB);
  Look();
  EXPECT_EQ(Offenders(), Names({"a"}));
}

TEST_F(ConnectionLedgerTest, CallsThatTheGateRefusesCostMore) {
  quotas_.burst_tokens = 1000;
  quotas_.tokens_per_second = 100;
  Connect("a");
  Refuse("a", 60);
  Receive("a", kMiB);
  Look();
  EXPECT_EQ(Offenders(), Names());
  Refuse("a", 20);
  Receive("a", kMiB);
  Look();
  EXPECT_EQ(Offenders(), Names({"a"}));
}

TEST_F(ConnectionLedgerTest, RefusedCallsOfAConnectionThatSharesTheSlotAreNotCharged) {
  quotas_.burst_tokens = 1000;
  quotas_.tokens_per_second = 100;
  for (size_t i = 0; i < ConnectionLedger::kSlots; ++i) Connect(absl::StrCat("a", i));
  Connect("b", "client");
  ledger().counts(connections_["b"].slot)->refused += 200;
  Pass("b", 100);
  End("b", 100);
  Receive("b", kMiB);
  Look();
  EXPECT_EQ(Offenders(), Names());
  // Nor later.
  ledger().Sweep([](const std::string& name) { return name == "b"; }, now_);
  const Connection b = connections_["b"];
  connections_ = {{"b", b}};
  Pass("b", 50);
  End("b", 50);
  Receive("b", kMiB);
  Look();
  EXPECT_EQ(Offenders(), Names());
}

TEST_F(ConnectionLedgerTest, TrustedPeersAreIgnored) {
  Connect("a", "server", true);
  EXPECT_EQ(LooksUntilStrayOffence("a"), 0);
  EXPECT_FALSE(ledger().OnDebt("a", now_));
  EXPECT_EQ(Offenders(), Names());
}

// After an offence.

TEST_F(ConnectionLedgerTest, PeerGetsNoConnectionUntilItsExclusionEnds) {
  Connect("a");
  ASSERT_GT(LooksUntilStrayOffence("a"), 0);
  EXPECT_TRUE(ledger().HasExcluded(now_));
  Connect("b");
  EXPECT_EQ(Offenders(), Names({"b"}));
  Connect("c", "client");
  EXPECT_EQ(Offenders(), Names());
  now_ += limits_.first_exclusion;
  EXPECT_FALSE(ledger().HasExcluded(now_));
  Connect("d");
  EXPECT_EQ(Offenders(), Names());
}

TEST_F(ConnectionLedgerTest, PeerDeepInDebtIsExcluded) {
  Connect("a");
  EXPECT_TRUE(ledger().OnDebt("a", now_));
  Connect("b");
  EXPECT_EQ(Offenders(), Names({"a", "b"}));
}

TEST_F(ConnectionLedgerTest, SecondOffenceEndsAllConnectionsOfThePeer) {
  for (const char* const name : {"a", "b", "c", "d"}) Connect(name);
  Connect("e", "client");
  ledger().OnDebt("a", now_);
  EXPECT_EQ(Offenders(), Names({"a"}));
  // Forgotten by now.
  now_ += limits_.offences_last;
  ledger().OnDebt("b", now_);
  EXPECT_EQ(Offenders(), Names({"b"}));
  now_ += limits_.first_exclusion;
  ledger().OnDebt("c", now_);
  EXPECT_EQ(Offenders(), Names({"c", "d"}));
}

TEST_F(ConnectionLedgerTest, PeerWithoutACertificateLosesOnlyItsConnection) {
  ConnectAs("a", PeerName({}, "10.0.0.1"));
  for (int offence = 0; offence < 3; ++offence) {
    const std::string name = absl::StrCat(offence);
    ConnectAs(name, PeerName({}, "10.0.0.1"));
    ledger().OnDebt(name, now_);
    EXPECT_EQ(Offenders(), Names({name}));
    EXPECT_FALSE(ledger().HasExcluded(now_));
    now_ += seconds(2);
  }
}

TEST_F(ConnectionLedgerTest, ExclusionsGrowAndAreForgotten) {
  const auto exclusion = [&] {
    const std::string name = absl::StrCat("a", now_.time_since_epoch().count());
    Connect(name);
    EXPECT_GT(LooksUntilStrayOffence(name), 0);
    const MonotonicTime begin = now_;
    while (ledger().HasExcluded(now_)) now_ += kInterval;
    return now_ - begin;
  };
  EXPECT_EQ(exclusion(), limits_.first_exclusion);
  EXPECT_EQ(exclusion(), kExclusionGrowth * limits_.first_exclusion);
  EXPECT_EQ(exclusion(), kExclusionGrowth * kExclusionGrowth * limits_.first_exclusion);
  EXPECT_EQ(exclusion(), limits_.max_exclusion);
  now_ += limits_.offences_last;
  EXPECT_EQ(exclusion(), limits_.first_exclusion);
}

TEST_F(ConnectionLedgerTest, NextConnectionHasNoNewBurst) {
  Connect("a");
  const int first = LooksUntilStrayOffence("a");
  ledger().Sweep([](const std::string&) { return false; }, now_);
  connections_.clear();
  now_ += limits_.first_exclusion;
  Connect("b");
  EXPECT_LT(LooksUntilStrayOffence("b"), first);
}

TEST_F(ConnectionLedgerTest, OffenderMayHoldAsManyIncompleteBytes) {
  limits_.max_incomplete_bytes = 64 * kMiB;
  limits_.incomplete_bytes_per_connection = 0;
  const auto mib_until_offence = [&](const std::string& name) -> uint64_t {
    Connect(name);
    Pass(name, 4);
    for (uint64_t mib = 1; mib <= 200; ++mib) {
      Receive(name, kMiB);
      Look();
      if (!Offenders().empty()) return mib;
    }
    return 0;
  };
  for (int offence = 0; offence < 3; ++offence) {
    EXPECT_EQ(mib_until_offence(absl::StrCat(offence)), 65u);
    now_ += limits_.max_exclusion;
  }
}

TEST_F(ConnectionLedgerTest, DebtOfStrayTimeIsBounded) {
  Connect("first");
  const int looks = LooksUntilStrayOffence("first");
  ASSERT_GT(looks, 0);
  now_ += limits_.offences_last;
  for (int i = 0; i < 20; ++i) Connect(absl::StrCat("a", i));
  for (int look = 0; look < 20; ++look) {
    for (int i = 0; i < 20; ++i) Receive(absl::StrCat("a", i), kMiB);
    Look();
  }
  EXPECT_EQ(Offenders().size(), 20u);
  // The burst and the greatest debt, with their exclusion.
  now_ += seconds(15) + limits_.first_exclusion;
  Connect("next");
  EXPECT_EQ(LooksUntilStrayOffence("next"), looks);
}

TEST_F(ConnectionLedgerTest, PeersBeyondTheTableAreToldApartByCertificate) {
  // One certificate on many hosts.
  for (size_t i = 0; i < kMaxPeers; ++i)
    ConnectAs(absl::StrCat("a", i), PeerName({"attacker"}, absl::StrCat(i)));
  Connect("b", "worker");
  ledger().OnDebt("b", now_);
  Connect("c", "client");
  EXPECT_EQ(Offenders(), Names({"b"}));
  ConnectAs("d", PeerName({"worker"}, "10.0.0.2"));
  EXPECT_EQ(Offenders(), Names({"d"}));
  // Peers without connections make room.
  now_ += limits_.offences_last;
  ledger().Sweep([](const std::string&) { return false; }, now_);
  connections_.clear();
  Connect("e", "worker");
  ledger().OnDebt("e", now_);
  ConnectAs("f", PeerName({"worker"}, "10.0.0.2"));
  EXPECT_EQ(Offenders(), Names({"e"}));
}

}  // namespace
}  // namespace pawl
