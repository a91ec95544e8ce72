// SPDX-License-Identifier: Apache-2.0
#pragma once
// The notices of the watch over waits (comm/watch.hpp) over the connections of a mesh: one receive is open from every other
// process.
//
//   process->watch = std::make_unique<tcp::Notices>(process->mesh);

#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <weft/comm/tcp/message.hpp>
#include <weft/comm/watch.hpp>

namespace weft::comm::tcp {

class Notices final : public Watch {
 public:
  explicit Notices(std::shared_ptr<Mesh> mesh)
      : Watch(mesh->rank()), mesh_(std::move(mesh)), arriving_(std::size_t(mesh_->size())) {
    for (int q = 0; q < mesh_->size(); ++q)
      if (q != mesh_->rank()) listen(q);
  }

 protected:
  int size() const override { return mesh_->size(); }
  void send(int rank, const std::string& notice) override {
    std::erase_if(leaving_, [](const Message& message) { return message.gone(); });
    const std::size_t bytes = std::min(notice.size(), most);
    Message message;
    message.bytes.reset(new char[bytes]);
    std::memcpy(message.bytes.get(), notice.data(), bytes);
    try {
      message.buffer = mesh_->buffer(message.bytes.get(), bytes);
      message.buffer->send(rank, where(), 0, bytes);
      leaving_.push_back(std::move(message));
    } catch (const std::exception&) {  // the connection is gone: waits for that rank throw
    }
  }
  bool receive(std::string& notice) override {
    for (std::size_t q = 0; q < arriving_.size(); ++q) {
      Message& message = arriving_[q];
      try {
        if (!message.buffer || !message.buffer->received()) continue;
        notice.assign(message.bytes.get(), most);
        listen(int(q));
        return true;
      } catch (const std::exception&) {
        message.buffer.reset();
      }
    }
    return false;
  }

 private:
  static constexpr std::size_t most = 4096;
  struct Message {
    std::unique_ptr<char[]> bytes;
    std::unique_ptr<Buffer> buffer = nullptr;
    bool gone() const {
      try {
        return buffer->sent();
      } catch (const std::exception&) {
        return true;
      }
    }
  };
  static std::uint64_t where() { return slot(Kind::notice, 0, 1); }  // number 0 is the notice of a process's end
  void listen(int q) {
    Message& message = arriving_[std::size_t(q)];
    message.bytes.reset(new char[most]());
    message.buffer = mesh_->buffer(message.bytes.get(), most);
    try {
      message.buffer->recv(q, where(), 0, most);
    } catch (const std::exception&) {  // that rank is gone and sends no more notices
      message.buffer.reset();
    }
  }

  std::shared_ptr<Mesh> mesh_;
  std::vector<Message> arriving_;
  std::deque<Message> leaving_;
};

}  // namespace weft::comm::tcp
