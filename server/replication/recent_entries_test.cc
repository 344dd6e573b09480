#include "server/replication/recent_entries.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

using Entries = std::vector<ReplicationLane::Entry>;

// A message of 100 bytes with one entry a pair (partition, index), whose bytes are `text`.
struct Message {
  explicit Message(std::string t) : text(std::make_shared<const std::string>(std::move(t))) {}

  void AddTo(RecentEntries& recent, const std::vector<std::pair<uint32_t, uint64_t>>& entries) const {
    Entries list;
    for (const auto& [partition, index] : entries) {
      list.push_back({partition, index, ByteView(text->data(), text->size()), text});
    }
    recent.Add(text, 100, std::move(list));
  }

  const std::shared_ptr<const std::string> text;
};

std::string Texts(const std::optional<Entries>& entries) {
  if (!entries.has_value()) return "none";
  std::string texts;
  for (const ReplicationLane::Entry& entry : *entries) {
    texts += std::to_string(entry.index) + *static_cast<const std::string*>(entry.owner.get()) + " ";
  }
  return texts;
}

TEST(RecentEntriesTest, FindsARunOfOnePartitionInOrder) {
  RecentEntries recent;
  Message("a").AddTo(recent, {{1, 4}, {2, 7}, {1, 5}});
  Message("b").AddTo(recent, {{1, 6}, {2, 8}});
  EXPECT_EQ(Texts(recent.Find(1, 4, 6)), "4a 5a 6b ");
  EXPECT_EQ(Texts(recent.Find(1, 5, 5)), "5a ");
  EXPECT_EQ(Texts(recent.Find(2, 7, 8)), "7a 8b ");
}

TEST(RecentEntriesTest, ARunWithAGapIsNone) {
  RecentEntries recent;
  Message("a").AddTo(recent, {{1, 4}, {1, 6}});
  EXPECT_EQ(Texts(recent.Find(1, 4, 6)), "none");
  EXPECT_EQ(Texts(recent.Find(1, 3, 4)), "none");
  EXPECT_EQ(Texts(recent.Find(3, 1, 1)), "none");
}

TEST(RecentEntriesTest, NothingWantedIsThere) { EXPECT_EQ(Texts(RecentEntries().Find(1, 5, 4)), ""); }

TEST(RecentEntriesTest, OfAnIndexThatCameTwiceTheLastCounts) {
  RecentEntries recent;
  Message("old").AddTo(recent, {{1, 4}, {1, 5}});
  Message("new").AddTo(recent, {{1, 5}});
  EXPECT_EQ(Texts(recent.Find(1, 4, 5)), "4old 5new ");
}

TEST(RecentEntriesTest, BeyondTheLimitTheOldestMessagesGo) {
  RecentEntries recent(/*max_bytes=*/250);
  std::weak_ptr<const std::string> first;
  {
    const Message message("a");
    first = message.text;
    message.AddTo(recent, {{1, 1}});
    // The same message again takes no more room.
    message.AddTo(recent, {{2, 1}});
  }
  Message("b").AddTo(recent, {{1, 2}});
  EXPECT_EQ(Texts(recent.Find(1, 1, 2)), "1a 2b ");
  Message("c").AddTo(recent, {{1, 3}});
  EXPECT_EQ(Texts(recent.Find(1, 1, 3)), "none");
  EXPECT_EQ(Texts(recent.Find(1, 2, 3)), "2b 3c ");
  EXPECT_TRUE(first.expired());
}

// Their primaries send at the same time, and each partition is added by itself.
TEST(RecentEntriesTest, MessagesThatComeInTurnTakeTheirRoomOnce) {
  RecentEntries recent(/*max_bytes=*/250);
  std::weak_ptr<const std::string> first;
  {
    const Message a("a");
    const Message b("b");
    first = a.text;
    for (uint64_t index = 1; index <= 100; ++index) {
      a.AddTo(recent, {{1, index}});
      b.AddTo(recent, {{2, index}});
    }
  }
  EXPECT_TRUE(recent.Find(1, 1, 100).has_value());
  EXPECT_TRUE(recent.Find(2, 1, 100).has_value());
  // They go with the last of their entries.
  Message("c").AddTo(recent, {{3, 1}});
  EXPECT_EQ(Texts(recent.Find(3, 1, 1)), "1c ");
  EXPECT_FALSE(recent.Find(1, 100, 100).has_value());
  EXPECT_EQ(Texts(recent.Find(2, 100, 100)), "100b ");
  EXPECT_TRUE(first.expired());
}

}  // namespace
}  // namespace pawl
