#include "scheduler/placement/partition_meter.h"

#include "client_lib/base/testing/simulated_clock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::seconds;

PartitionFigures Figures(uint32_t partition, uint64_t bytes, uint64_t pushed, uint64_t pulled) {
  PartitionFigures figures;
  figures.set_partition(partition);
  figures.set_parameter_bytes(bytes);
  figures.set_keys_pushed(pushed);
  figures.set_keys_pulled(pulled);
  return figures;
}

TEST(PartitionMeterTest, RatesNeedTwoReportsOfEveryPartition) {
  SimulatedClock clock;
  PartitionMeter meter(2);
  meter.Note(7, Figures(0, 100, 1000, 0), clock.Now());
  meter.Note(7, Figures(1, 200, 0, 50), clock.Now());
  EXPECT_TRUE(meter.Loads().empty());
  clock.Advance(seconds(2));
  meter.Note(7, Figures(0, 120, 3000, 0), clock.Now());
  EXPECT_TRUE(meter.Loads().empty());
  meter.Note(7, Figures(1, 200, 0, 70), clock.Now());
  const PartitionLoads loads = meter.Loads();
  ASSERT_EQ(loads.size(), 2u);
  EXPECT_EQ(loads[0].parameter_bytes, 120u);
  EXPECT_EQ(loads[0].keys_pushed, 1000u);
  EXPECT_EQ(loads[1].keys_pulled, 10u);
}

TEST(PartitionMeterTest, BurstIsSmoothed) {
  SimulatedClock clock;
  PartitionMeter meter(1);
  meter.Note(7, Figures(0, 0, 0, 0), clock.Now());
  clock.Advance(seconds(60));
  meter.Note(7, Figures(0, 0, 60000, 0), clock.Now());
  clock.Advance(seconds(1));
  meter.Note(7, Figures(0, 0, 160000, 0), clock.Now());
  EXPECT_LT(meter.Loads()[0].keys_pushed, 10000u);
  EXPECT_GT(meter.Loads()[0].keys_pushed, 1000u);
}

TEST(PartitionMeterTest, FirstIntervalCountsByItsLength) {
  SimulatedClock clock;
  PartitionMeter meter(1);
  meter.Note(7, Figures(0, 0, 0, 0), clock.Now());
  clock.Advance(std::chrono::milliseconds(100));
  meter.Note(7, Figures(0, 0, 10000, 0), clock.Now());
  clock.Advance(seconds(10));
  meter.Note(7, Figures(0, 0, 20000, 0), clock.Now());
  EXPECT_GT(meter.Loads()[0].keys_pushed, 1500u);
  EXPECT_LT(meter.Loads()[0].keys_pushed, 2000u);
}

TEST(PartitionMeterTest, NewPrimaryKeepsTheMeasuredRate) {
  SimulatedClock clock;
  PartitionMeter meter(1);
  meter.Note(7, Figures(0, 0, 0, 0), clock.Now());
  clock.Advance(seconds(1));
  meter.Note(7, Figures(0, 0, 1000, 5), clock.Now());
  clock.Advance(seconds(1));
  meter.Note(8, Figures(0, 0, 2000, 0), clock.Now());
  EXPECT_EQ(meter.Loads()[0].keys_pushed, 1000u);
  meter.Note(8, Figures(5, 0, 0, 0), clock.Now());
}

}  // namespace
}  // namespace pawl
