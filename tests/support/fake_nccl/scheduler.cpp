// SPDX-License-Identifier: Apache-2.0
#include "support/fake_nccl/scheduler.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>
#include <utility>

#include "support/fake_nccl/fake.hpp"
#include "support/fake_nccl/memory.hpp"
#include "support/fake_nccl/reports.hpp"

namespace fake_nccl {
namespace {

std::atomic<int> streams_made{0}, hosts_made{0};

// Threads of streams outlive static objects: nothing here is destroyed.
struct Streams {
  std::mutex mutex;
  std::set<std::shared_ptr<Stream>> all;
};
Streams& known() {
  static auto* const streams = new Streams;
  return *streams;
}

Schedule schedule_of_environment() {
  Schedule schedule;
  const char* const text = std::getenv("WEFT_FAKE_SCHEDULE");
  if (text == nullptr) return schedule;
  if (std::strcmp(text, "eager") == 0) schedule.order = Schedule::Order::eager;
  else if (std::strcmp(text, "lazy") == 0) schedule.order = Schedule::Order::lazy;
  else schedule.seed = unsigned(std::strtoul(text, nullptr, 10));
  return schedule;
}

}  // namespace

Schedule& schedule() {
  static auto* const schedule = new Schedule(schedule_of_environment());
  return *schedule;
}

void set_schedule(const Schedule& wanted) {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    std::lock_guard lock(known().mutex);
    streams.assign(known().all.begin(), known().all.end());
  }
  for (const auto& stream : streams) stream->drain();
  schedule() = wanted;
}

std::mutex& clocks_mutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

Host& this_host_thread() {
  static thread_local Host host{++hosts_made, {}};
  return host;
}

void host_has_waited_for(const Clock& clock) {
  std::lock_guard lock(clocks_mutex());
  this_host_thread().clock.merge(clock);
  settle(clock, Settled::for_others);
}

void random_delay(unsigned salt) {
  if (schedule().order == Schedule::Order::eager) return;
  std::minstd_rand random(schedule().seed * 7919 + salt);
  random.discard(3);
  std::this_thread::sleep_for(std::chrono::microseconds(random() % schedule().longest_us));
}

Stream::Stream(int d) : number(++streams_made), device(d), random_(schedule().seed * 104729 + unsigned(number)) {}

void Stream::add(Task task, const Host& host) {
  std::lock_guard order(clocks_mutex());
  std::lock_guard lock(mutex_);
  clock_.merge(host.clock);
  clock_.advance(number, ++given_);
  for (const auto* ranges : {&task.reads, &task.writes})
    for (const Range& range : *ranges) access({task.name, range, ranges == &task.writes, number, given_, host.number}, clock_);
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}
void Stream::come_after(const Clock& other) {
  std::lock_guard order(clocks_mutex());
  clock_.merge(other);
}
Clock Stream::clock() const {
  std::lock_guard order(clocks_mutex());
  return clock_;
}
std::uint64_t Stream::given() const {
  std::lock_guard lock(mutex_);
  return given_;
}
bool Stream::drain(double seconds) {
  std::unique_lock lock(mutex_);
  const std::uint64_t until = given_;
  demanded_ = std::max(demanded_, until);
  changed_.notify_all();
  const auto done = [&] { return done_ >= until; };
  if (seconds < 0) changed_.wait(lock, done);
  return seconds < 0 || changed_.wait_for(lock, std::chrono::duration<double>(seconds), done);
}
void Stream::demand() {
  std::lock_guard lock(mutex_);
  demanded_ = given_;
  changed_.notify_all();
}
void Stream::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}
std::string Stream::at() const {
  std::lock_guard lock(mutex_);
  return at_;
}

/// The next task may start when this returns.
void Stream::pause(std::unique_lock<std::mutex>& lock) {
  using enum Schedule::Order;
  if (schedule().order == eager) return;
  const bool lazily = schedule().order == lazy;
  const auto draw = random_();
  const auto while_ = std::chrono::microseconds(lazily ? 500 : draw % 2 == 0 ? 0 : draw / 2 % schedule().longest_us);
  const std::uint64_t next = done_ + 1;
  if (while_.count() != 0) changed_.wait_for(lock, while_, [&] { return lazily && demanded_ >= next; });
}

void Stream::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closed_ || !tasks_.empty(); });
    if (tasks_.empty()) return;  // submitted work is completed before a stream ends
    at_ = tasks_.front().name;
    pause(lock);
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task.run();
    task.run = nullptr;
    lock.lock();
    at_.clear();
    ++done_;
    changed_.notify_all();
  }
}

std::shared_ptr<Stream> make_stream(int device) {
  auto made = std::make_shared<Stream>(device);
  {
    std::lock_guard lock(known().mutex);
    known().all.insert(made);
  }
  std::thread([made] {
    made->work();
    std::lock_guard lock(known().mutex);
    known().all.erase(made);
  }).detach();
  return made;
}

std::vector<Clock> wait_for_device(int device, const char* call) {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    std::lock_guard lock(known().mutex);
    std::copy_if(known().all.begin(), known().all.end(), std::back_inserter(streams),
                 [&](const auto& stream) { return stream->device == device; });
  }
  using Clock_ = std::chrono::steady_clock;
  const auto end =
      Clock_::now() + std::chrono::duration_cast<Clock_::duration>(std::chrono::duration<double>(machine().patience));
  std::vector<Clock> clocks;
  for (const auto& stream : streams) {  // all are wanted before any is waited for
    clocks.push_back(stream->clock());
    stream->demand();
  }
  for (const auto& stream : streams) {
    const double left = std::chrono::duration<double>(end - Clock_::now()).count();
    if (stream->drain(std::max(left, 0.0))) continue;
    report(std::string(call) + " waits for the whole GPU, and for " + std::to_string(machine().patience) +
           " s its stream has been at: " + stream->at());
    return {};
  }
  for (const Clock& clock : clocks) host_has_waited_for(clock);
  return clocks;
}

}  // namespace fake_nccl
