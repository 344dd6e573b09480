#include "server/threads/processor_pressure.h"

#include <fstream>
#include <string>

#include "client_lib/base/testing/simulated_clock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;

class ProcessorPressureTest : public testing::Test {
 protected:
  void Write(const std::string& text) { std::ofstream(file_) << text; }

  const std::string file_ = testing::TempDir() + "/cpu";
  SimulatedClock clock_;
  ProcessorPressure pressure_{clock_, file_};
};

TEST_F(ProcessorPressureTest, ShareIsThatOfTheTimeSinceTheLastReading) {
  Write("some avg10=0.34 avg60=6.26 avg300=32.77 total=5000000\nfull avg10=0.00 total=1\n");
  EXPECT_EQ(pressure_.Share(), 0);
  Write("some avg10=0.34 avg60=6.26 avg300=32.77 total=5150000\nfull avg10=0.00 total=2\n");
  clock_.Advance(milliseconds(99));
  EXPECT_EQ(pressure_.Share(), 0) << "too early";
  clock_.Advance(milliseconds(101));
  EXPECT_DOUBLE_EQ(pressure_.Share(), 0.75);
  clock_.Advance(milliseconds(100));
  EXPECT_EQ(pressure_.Share(), 0) << "nothing has waited since";
}

TEST_F(ProcessorPressureTest, KernelWithoutThisInformationMeansNoPressure) {
  ProcessorPressure absent(clock_, file_ + "-absent");
  for (const char* const text : {"", "some avg10=0.34", "some total=x"}) {
    Write(text);
    clock_.Advance(milliseconds(200));
    EXPECT_EQ(pressure_.Share(), 0) << text;
    EXPECT_EQ(absent.Share(), 0);
  }
  Write("some total=1000000");
  clock_.Advance(milliseconds(200));
  EXPECT_EQ(pressure_.Share(), 0) << "the first reading after a failed one";
}

}  // namespace
}  // namespace pawl
