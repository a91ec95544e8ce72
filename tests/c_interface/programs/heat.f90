! SPDX-License-Identifier: Apache-2.0
! A heat solver in Fortran trains the model "mlp" on its own fields, in ten lines of weft.
program heat
  use weft
  implicit none
  integer, parameter :: cells = 8, rods = 16
  real(8), target :: u(cells, rods), next(cells, rods), guess(cells, rods), half(cells, rods / 2)
  real(8) :: loss, start
  real(8), allocatable :: bias(:)
  integer :: step, rod, cell, code
  type(weft_model) :: model, wrong

  call weft_begin(threads=2)
  call model%create("mlp", "inputs=8 hidden=32 outputs=8")
  call model%optimizer("adamw", "learning_rate=1e-2 weight_decay=0")
  do step = 0, 299
    do rod = 1, rods
      do cell = 1, cells
        u(cell, rod) = mod(7 * rod + 5 * cell + 3 * step, 11) / 11d0
      end do
    end do
    next = 0.5d0 * u + 0.25d0 * (cshift(u, 1, dim=1) + cshift(u, -1, dim=1))
    call model%field("input", u)
    call model%field("target", next)
    call model%train(loss)
    if (step == 0) start = loss
  end do
  call model%predict(guess)

  ! Sections and expressions are copied.
  call model%field("input", real(u(:, 1:rods:2), 4))
  call model%predict(half)
  call model%field("input", u)
  call model%predict(guess)
  if (maxval(abs(half - guess(:, 1:rods:2))) > 0) stop 7

  call wrong%create("mlp", "width=3", code=code)
  if (code /= 2 .or. index(weft_error(), "there is no option width") == 0) stop 3
  call wrong%free()
  if (model%parameter_count() /= 4 .or. model%steps() /= 300 .or. .not. model%gradient_norm() > 0) stop 4
  allocate (bias(model%parameter_size("layers.1.bias")))
  call model%get("layers.1.bias", bias)
  call model%set("layers.1.bias", bias + 1)
  call model%predict(next)
  if (maxval(abs(next - guess - 1)) > 1d-5) stop 5
  call model%save("c_interface_heat")
  call model%set("layers.1.bias", bias)
  call model%load("c_interface_heat")
  call model%predict(guess)
  if (maxval(abs(next - guess)) > 0) stop 6
  print "(a, f7.4, a, f9.6, 2a)", "loss ", start, " to ", loss, ", weft ", weft_version()
  call model%free()
  call weft_end()
  if (loss > start / 50) stop 1
end program
