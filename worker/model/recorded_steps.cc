#include "worker/model/recorded_steps.h"

#include <algorithm>
#include <utility>

namespace pawl {

RecordedSteps::Step* RecordedSteps::Find(const StepKey& key) {
  const auto known =
      std::find_if(steps_.begin(), steps_.end(), [&](const Step& step) { return step.key == key; });
  return known == steps_.end() ? nullptr : &*known;
}

void RecordedSteps::Remember(StepKey key) {
  while (!steps_.empty() && steps_.front().key.layout != key.layout) steps_.pop_front();
  if (Find(key) != nullptr) return;
  if (steps_.size() == kMaxSteps) steps_.pop_front();
  steps_.emplace_back().key = std::move(key);
}

}  // namespace pawl
