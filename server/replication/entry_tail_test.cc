#include "server/replication/entry_tail.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

using Entries = std::vector<ReplicationStream::Entry>;

// A message of 100 bytes with one entry for each pair (partition, index); the entries' bytes are
// `text`.
struct Message {
  explicit Message(std::string t) : text(std::make_shared<const std::string>(std::move(t))) {}

  void AddTo(EntryTail& tail, const std::vector<std::pair<uint32_t, uint64_t>>& entries) const {
    for (const auto& [partition, index] : entries) {
      tail.Add(text.get(), 100, {partition, index, ByteView(text->data(), text->size()), text});
    }
  }

  const std::shared_ptr<const std::string> text;
};

std::string Texts(const std::optional<Entries>& entries) {
  if (!entries.has_value()) return "none";
  std::string texts;
  for (const ReplicationStream::Entry& entry : *entries) {
    texts +=
        std::to_string(entry.index) + *static_cast<const std::string*>(entry.owner.get()) + " ";
  }
  return texts;
}

TEST(EntryTailTest, FindsARunOfOnePartitionInOrder) {
  EntryTail tail;
  Message("a").AddTo(tail, {{1, 4}, {2, 7}, {1, 5}});
  Message("b").AddTo(tail, {{1, 6}, {2, 8}});
  EXPECT_EQ(Texts(tail.Find(1, 4, 6)), "4a 5a 6b ");
  EXPECT_EQ(Texts(tail.Find(1, 5, 5)), "5a ");
  EXPECT_EQ(Texts(tail.Find(2, 7, 8)), "7a 8b ");
  EXPECT_EQ(Texts(tail.Find(1, 3, 4)), "none");
  EXPECT_EQ(Texts(tail.Find(1, 6, 7)), "none");
  EXPECT_EQ(Texts(tail.Find(3, 1, 1)), "none");
  EXPECT_EQ(Texts(tail.Find(3, 5, 4)), "") << "nothing is asked for";
}

TEST(EntryTailTest, GapDropsEarlierEntries) {
  EntryTail tail;
  Message("a").AddTo(tail, {{1, 4}, {2, 1}, {1, 6}});
  EXPECT_EQ(Texts(tail.Find(1, 4, 4)), "none");
  EXPECT_EQ(Texts(tail.Find(1, 6, 6)), "6a ");
  Message("b").AddTo(tail, {{1, 6}});
  EXPECT_EQ(Texts(tail.Find(1, 6, 6)), "6b ");
  EXPECT_EQ(Texts(tail.Find(2, 1, 1)), "1a ");
}

TEST(EntryTailTest, ForgottenEntriesAreGoneAndFreeTheirRoom) {
  EntryTail tail(/*max_bytes=*/250, /*entry_bytes=*/0);
  std::weak_ptr<const std::string> first;
  {
    const Message message("a");
    first = message.text;
    message.AddTo(tail, {{1, 4}, {1, 5}});
  }
  Message("b").AddTo(tail, {{2, 1}});
  tail.Forget(1);
  EXPECT_TRUE(first.expired());
  EXPECT_EQ(Texts(tail.Find(1, 5, 5)), "none");
  Message("c").AddTo(tail, {{2, 2}});
  // It continues the forgotten entries.
  Message("d").AddTo(tail, {{1, 6}});
  EXPECT_EQ(Texts(tail.Find(1, 5, 6)), "none");
  EXPECT_EQ(Texts(tail.Find(1, 6, 6)), "6d ");
  EXPECT_EQ(Texts(tail.Find(2, 1, 1)), "none") << "the oldest";
  EXPECT_EQ(Texts(tail.Find(2, 2, 2)), "2c ");
}

TEST(EntryTailTest, OldestEntriesAreDroppedBeyondTheLimit) {
  EntryTail tail(/*max_bytes=*/250, /*entry_bytes=*/0);
  std::weak_ptr<const std::string> first;
  {
    const Message message("a");
    first = message.text;
    message.AddTo(tail, {{1, 1}});
    // The same message again takes no more room.
    message.AddTo(tail, {{2, 1}});
  }
  Message("b").AddTo(tail, {{1, 2}});
  EXPECT_EQ(Texts(tail.Find(1, 1, 2)), "1a 2b ");
  Message("c").AddTo(tail, {{1, 3}});
  EXPECT_EQ(Texts(tail.Find(1, 1, 3)), "none");
  EXPECT_EQ(Texts(tail.Find(1, 2, 3)), "2b 3c ");
  EXPECT_TRUE(first.expired());
}

// Their primaries send at the same time, and each partition is added by itself.
TEST(EntryTailTest, InterleavedMessagesAreCountedOnce) {
  EntryTail tail(/*max_bytes=*/250, /*entry_bytes=*/0);
  std::weak_ptr<const std::string> first;
  {
    const Message a("a");
    const Message b("b");
    first = a.text;
    for (uint64_t index = 1; index <= 100; ++index) {
      a.AddTo(tail, {{1, index}});
      b.AddTo(tail, {{2, index}});
    }
  }
  EXPECT_TRUE(tail.Find(1, 1, 100).has_value());
  EXPECT_TRUE(tail.Find(2, 1, 100).has_value());
  // Messages are dropped with the last of their entries.
  Message("c").AddTo(tail, {{3, 1}});
  EXPECT_EQ(Texts(tail.Find(3, 1, 1)), "1c ");
  EXPECT_FALSE(tail.Find(1, 100, 100).has_value());
  EXPECT_EQ(Texts(tail.Find(2, 100, 100)), "100b ");
  EXPECT_TRUE(first.expired());
}

TEST(EntryTailTest, EntryCountsBesidesItsMessage) {
  EntryTail tail(/*max_bytes=*/100 + 3 * 50, /*entry_bytes=*/50);
  const Message message("a");
  message.AddTo(tail, {{1, 1}, {1, 2}, {1, 3}, {1, 4}});
  EXPECT_FALSE(tail.Find(1, 1, 1).has_value());
  EXPECT_TRUE(tail.Find(1, 2, 4).has_value());
  tail.Forget(1);
  message.AddTo(tail, {{2, 1}, {2, 2}, {2, 3}});
  EXPECT_TRUE(tail.Find(2, 1, 3).has_value()) << "forgotten entries take no room";
}

}  // namespace
}  // namespace pawl
