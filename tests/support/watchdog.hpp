// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ends a hanging test and names it. CTest's time limit only names the program. Here every test case has a deadline
// (WEFT_TEST_DEADLINE_S, default 300 s, one case with all its subcases). A case that exceeds it is printed with its file, line
// and rank before the process ends.
//
// Included once, by the main of a test program, after doctest.

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

#include <doctest/doctest.h>

namespace weft_test {

class Watchdog {
 public:
  static Watchdog& instance() {
    static Watchdog watchdog;
    return watchdog;
  }

  void start(int rank) {
    rank_ = rank;
    if (const char* text = std::getenv("WEFT_TEST_DEADLINE_S")) deadline_s_ = std::atof(text);
    thread_ = std::thread([this] { watch(); });
  }

  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  void enter(std::string what) {
    {
      std::lock_guard lock(mutex_);
      what_ = std::move(what);
      ++generation_;
    }
    changed_.notify_all();
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!stopped_) {
      const auto seen = generation_;
      const auto limit = std::chrono::duration<double>(deadline_s_);
      const bool changed = changed_.wait_for(lock, limit, [&] { return stopped_ || generation_ != seen; });
      if (changed || what_.empty()) continue;
      std::fprintf(stderr, "\nhang: rank %d has been in the test case %s for more than %g s\n", rank_, what_.c_str(),
                   deadline_s_);
      std::fflush(nullptr);
      std::_Exit(124);  // destructors would wait for the hanging threads
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
  std::string what_;
  double deadline_s_ = 300;
  unsigned long generation_ = 0;
  int rank_ = 0;
  bool stopped_ = false;
};

/// Sets the running test case in the watchdog.
struct WatchdogListener : doctest::IReporter {
  explicit WatchdogListener(const doctest::ContextOptions&) {}
  void test_case_start(const doctest::TestCaseData& data) override {
    Watchdog::instance().enter("\"" + std::string(data.m_name) + "\" (" + data.m_file.c_str() + ":" +
                               std::to_string(data.m_line) + ")");
  }
  void test_case_end(const doctest::CurrentTestCaseStats&) override { Watchdog::instance().enter(""); }
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

REGISTER_LISTENER("watchdog", 1, WatchdogListener);

}  // namespace weft_test
