! SPDX-License-Identifier: Apache-2.0
! weft from Fortran 2018: the functions of weft/c_interface/weft.h on derived types, with arrays instead of addresses. A sample is the
! last dim of an array: u(cells, samples) gives the field u of shape [cells]. Every procedure takes an optional `code`; without
! it an error prints its line and ends the program with its exit code.
!   use weft; type(weft_model) :: model
!   call weft_begin()
!   call model%create("mlp", "inputs=32 hidden=64 outputs=32")
!   call model%optimizer("adamw", "learning_rate=1e-3")
!   do step = 1, 100
!     call model%field("input", u)
!     call model%field("target", next)
!     call model%train(loss)
!   end do
module weft
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit
  implicit none
  private
  public :: weft_begin, weft_end, weft_error, weft_version, weft_world, weft_model, weft_model_count, weft_model_name

  type :: weft_world
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: single => world_single
    procedure :: mpi => world_mpi
    procedure :: rank => world_rank
    procedure :: size => world_size
    procedure :: free => world_free
  end type

  type :: weft_model
    type(c_ptr) :: handle = c_null_ptr
    type(c_ptr) :: own_world = c_null_ptr   ! of a model without a world: this process
  contains
    procedure :: create => model_create
    procedure :: free => model_free
    procedure :: optimizer => model_optimizer
    procedure :: learning_rate => model_learning_rate
    procedure, private :: field_real32, field_real64, field_int32
    generic :: field => field_real32, field_real64, field_int32
    procedure :: train => model_train
    procedure :: evaluate => model_evaluate
    procedure :: predict => model_predict
    procedure :: gradient_norm => model_gradient_norm
    procedure :: steps => model_steps
    procedure :: save => model_save
    procedure :: load => model_load
    procedure :: parameter_count => model_parameter_count
    procedure :: parameter_name => model_parameter_name
    procedure :: parameter_size => model_parameter_size
    procedure :: get => model_parameter_get
    procedure :: set => model_parameter_set
  end type

  interface
    integer(c_int) function c_begin(threads) bind(c, name="weft_begin")
      import; integer(c_int), value :: threads
    end function
    integer(c_int) function c_end() bind(c, name="weft_end")
      import
    end function
    type(c_ptr) function c_version() bind(c, name="weft_version")
      import
    end function
    type(c_ptr) function c_error() bind(c, name="weft_error")
      import
    end function
    integer(c_int) function c_world_single(world) bind(c, name="weft_world_single")
      import; type(c_ptr), intent(out) :: world
    end function
    integer(c_int) function c_world_mpi(communicator, world) bind(c, name="weft_world_mpi")
      import; integer(c_int), value :: communicator; type(c_ptr), intent(out) :: world
    end function
    integer(c_int) function c_world_rank(world) bind(c, name="weft_world_rank")
      import; type(c_ptr), value :: world
    end function
    integer(c_int) function c_world_size(world) bind(c, name="weft_world_size")
      import; type(c_ptr), value :: world
    end function
    integer(c_int) function c_world_free(world) bind(c, name="weft_world_free")
      import; type(c_ptr), value :: world
    end function
    integer(c_int) function c_model_count() bind(c, name="weft_model_count")
      import
    end function
    type(c_ptr) function c_model_name(index) bind(c, name="weft_model_name")
      import; integer(c_int), value :: index
    end function
    integer(c_int) function c_model_new(world, name, options, model) bind(c, name="weft_model_new")
      import; type(c_ptr), value :: world; character(kind=c_char), intent(in) :: name(*), options(*)
      type(c_ptr), intent(out) :: model
    end function
    integer(c_int) function c_model_free(model) bind(c, name="weft_model_free")
      import; type(c_ptr), value :: model
    end function
    integer(c_int) function c_optimizer(model, name, options) bind(c, name="weft_optimizer")
      import; type(c_ptr), value :: model; character(kind=c_char), intent(in) :: name(*), options(*)
    end function
    integer(c_int) function c_learning_rate(model, rate) bind(c, name="weft_learning_rate")
      import; type(c_ptr), value :: model; real(c_double), value :: rate
    end function
    integer(c_int) function c_field(model, field, values, kind, samples, rank, shape) bind(c, name="weft_field_copy")
      import; type(c_ptr), value :: model, values; character(kind=c_char), intent(in) :: field(*)
      integer(c_int), value :: kind, rank; integer(c_size_t), value :: samples; integer(c_size_t), intent(in) :: shape(*)
    end function
    integer(c_int) function c_train(model, loss) bind(c, name="weft_train")
      import; type(c_ptr), value :: model; real(c_double), intent(out) :: loss
    end function
    integer(c_int) function c_evaluate(model, loss) bind(c, name="weft_evaluate")
      import; type(c_ptr), value :: model; real(c_double), intent(out) :: loss
    end function
    integer(c_int) function c_predict(model, outputs, count) bind(c, name="weft_predict")
      import; type(c_ptr), value :: model, outputs; integer(c_size_t), value :: count
    end function
    integer(c_int) function c_gradient_norm(model, norm) bind(c, name="weft_gradient_norm")
      import; type(c_ptr), value :: model; real(c_double), intent(out) :: norm
    end function
    integer(c_int) function c_steps(model, steps) bind(c, name="weft_steps")
      import; type(c_ptr), value :: model; integer(c_int64_t), intent(out) :: steps
    end function
    integer(c_int) function c_save(model, folder) bind(c, name="weft_save")
      import; type(c_ptr), value :: model; character(kind=c_char), intent(in) :: folder(*)
    end function
    integer(c_int) function c_load(model, folder) bind(c, name="weft_load")
      import; type(c_ptr), value :: model; character(kind=c_char), intent(in) :: folder(*)
    end function
    integer(c_int) function c_parameter_count(model) bind(c, name="weft_parameter_count")
      import; type(c_ptr), value :: model
    end function
    type(c_ptr) function c_parameter_name(model, index) bind(c, name="weft_parameter_name")
      import; type(c_ptr), value :: model; integer(c_int), value :: index
    end function
    integer(c_int) function c_parameter_size(model, name, size) bind(c, name="weft_parameter_size")
      import; type(c_ptr), value :: model; character(kind=c_char), intent(in) :: name(*)
      integer(c_size_t), intent(out) :: size
    end function
    integer(c_int) function c_parameter_get(model, name, values, count) bind(c, name="weft_parameter_get")
      import; type(c_ptr), value :: model; character(kind=c_char), intent(in) :: name(*)
      real(c_double), intent(out) :: values(*); integer(c_size_t), value :: count
    end function
    integer(c_int) function c_parameter_set(model, name, values, count) bind(c, name="weft_parameter_set")
      import; type(c_ptr), value :: model; character(kind=c_char), intent(in) :: name(*)
      real(c_double), intent(in) :: values(*); integer(c_size_t), value :: count
    end function
    integer(c_size_t) function c_strlen(text) bind(c, name="strlen")
      import; type(c_ptr), value :: text
    end function
  end interface

contains

  ! A text of C as a string.
  function text_of(pointer) result(text)
    type(c_ptr), intent(in) :: pointer
    character(:), allocatable :: text
    character(kind=c_char), pointer :: letters(:)
    integer :: i
    text = ""
    if (.not. c_associated(pointer)) return
    call c_f_pointer(pointer, letters, [c_strlen(pointer)])
    text = repeat(" ", size(letters))
    do i = 1, size(letters)
      text(i:i) = letters(i)
    end do
  end function

  function c_text(text) result(letters)
    character(*), intent(in) :: text
    character(kind=c_char) :: letters(len_trim(text) + 1)
    integer :: i
    do i = 1, len_trim(text)
      letters(i) = text(i:i)
    end do
    letters(len_trim(text) + 1) = c_null_char
  end function

  ! Returns a function's code, or ends the program if the caller does not take it.
  subroutine finish(found, code)
    integer(c_int), intent(in) :: found
    integer, intent(out), optional :: code
    if (present(code)) then
      code = found
    else if (found /= 0) then
      write (error_unit, "(a)") text_of(c_error())
      stop found, quiet=.true.
    end if
  end subroutine

  subroutine weft_begin(threads, code)
    integer, intent(in), optional :: threads
    integer, intent(out), optional :: code
    integer(c_int) :: count
    count = 0
    if (present(threads)) count = threads
    call finish(c_begin(count), code)
  end subroutine
  subroutine weft_end(code)
    integer, intent(out), optional :: code
    call finish(c_end(), code)
  end subroutine
  function weft_error() result(text)
    character(:), allocatable :: text
    text = text_of(c_error())
  end function
  function weft_version() result(text)
    character(:), allocatable :: text
    text = text_of(c_version())
  end function
  integer function weft_model_count()
    weft_model_count = c_model_count()
  end function
  ! Models have the numbers 1 to weft_model_count().
  function weft_model_name(number) result(text)
    integer, intent(in) :: number; character(:), allocatable :: text
    text = text_of(c_model_name(int(number - 1, c_int)))
  end function

  subroutine world_single(self, code)
    class(weft_world), intent(inout) :: self
    integer, intent(out), optional :: code
    call finish(c_world_single(self%handle), code)
  end subroutine
  ! A communicator of MPI: the integer of `use mpi`, or %mpi_val of `use mpi_f08`.
  subroutine world_mpi(self, communicator, code)
    class(weft_world), intent(inout) :: self
    integer, intent(in) :: communicator
    integer, intent(out), optional :: code
    call finish(c_world_mpi(int(communicator, c_int), self%handle), code)
  end subroutine
  integer function world_rank(self)
    class(weft_world), intent(in) :: self
    world_rank = c_world_rank(self%handle)
  end function
  integer function world_size(self)
    class(weft_world), intent(in) :: self
    world_size = c_world_size(self%handle)
  end function
  subroutine world_free(self, code)
    class(weft_world), intent(inout) :: self
    integer, intent(out), optional :: code; integer(c_int) :: found
    found = c_world_free(self%handle)
    if (found == 0) self%handle = c_null_ptr
    call finish(found, code)
  end subroutine

  ! Without a world the model trains in this process.
  subroutine model_create(self, name, options, world, code)
    class(weft_model), intent(inout) :: self
    character(*), intent(in) :: name
    character(*), intent(in), optional :: options
    class(weft_world), intent(in), optional :: world
    integer, intent(out), optional :: code
    character(:), allocatable :: given
    type(c_ptr) :: handle
    integer(c_int) :: found
    given = ""
    if (present(options)) given = options
    if (present(world)) then
      handle = world%handle
    else
      found = c_world_single(handle)
      if (found /= 0) then
        call finish(found, code)
        return
      end if
      self%own_world = handle
    end if
    found = c_model_new(handle, c_text(name), c_text(given), self%handle)
    if (found /= 0) self%handle = c_null_ptr
    if (found /= 0 .and. c_associated(self%own_world)) then
      if (c_world_free(self%own_world) == 0) self%own_world = c_null_ptr
    end if
    call finish(found, code)
  end subroutine
  subroutine model_free(self, code)
    class(weft_model), intent(inout) :: self
    integer, intent(out), optional :: code; integer(c_int) :: found
    found = c_model_free(self%handle)
    self%handle = c_null_ptr
    if (found == 0 .and. c_associated(self%own_world)) then
      found = c_world_free(self%own_world)
      self%own_world = c_null_ptr
    end if
    call finish(found, code)
  end subroutine
  subroutine model_optimizer(self, name, options, code)
    class(weft_model), intent(in) :: self; character(*), intent(in) :: name
    character(*), intent(in), optional :: options
    integer, intent(out), optional :: code
    character(:), allocatable :: given
    given = ""
    if (present(options)) given = options
    call finish(c_optimizer(self%handle, c_text(name), c_text(given)), code)
  end subroutine
  subroutine model_learning_rate(self, rate, code)
    class(weft_model), intent(in) :: self
    real(c_double), intent(in) :: rate
    integer, intent(out), optional :: code
    call finish(c_learning_rate(self%handle, rate), code)
  end subroutine

  ! The shape of a sample, slowest dim first, of an array whose last dim counts samples.
  subroutine give(self, name, values, kind, extents, code)
    class(weft_model), intent(in) :: self; character(*), intent(in) :: name
    type(c_ptr), intent(in) :: values
    integer(c_int), intent(in) :: kind
    integer, intent(in) :: extents(:)
    integer, intent(out), optional :: code
    integer :: rank
    rank = size(extents)
    if (rank == 0) then  ! one sample of a scalar
      call finish(c_field(self%handle, c_text(name), values, kind, 1_c_size_t, 0_c_int, [1_c_size_t]), code)
      return
    end if
    call finish(c_field(self%handle, c_text(name), values, kind, int(extents(rank), c_size_t), int(rank - 1, c_int), &
                        int(extents(rank - 1:1:-1), c_size_t)), code)
  end subroutine
  ! The values are copied, so sections and expressions are welcome.
  subroutine field_real32(self, name, values, code)
    class(weft_model), intent(in) :: self; character(*), intent(in) :: name
    real(c_float), intent(in), target, contiguous :: values(..)
    integer, intent(out), optional :: code
    call give(self, name, c_loc(values), 0_c_int, shape(values), code)
  end subroutine
  subroutine field_real64(self, name, values, code)
    class(weft_model), intent(in) :: self; character(*), intent(in) :: name
    real(c_double), intent(in), target, contiguous :: values(..)
    integer, intent(out), optional :: code
    call give(self, name, c_loc(values), 1_c_int, shape(values), code)
  end subroutine
  subroutine field_int32(self, name, values, code)
    class(weft_model), intent(in) :: self; character(*), intent(in) :: name
    integer(c_int32_t), intent(in), target, contiguous :: values(..)
    integer, intent(out), optional :: code
    call give(self, name, c_loc(values), 2_c_int, shape(values), code)
  end subroutine

  subroutine model_train(self, loss, code)
    class(weft_model), intent(in) :: self; real(c_double), intent(out) :: loss
    integer, intent(out), optional :: code
    call finish(c_train(self%handle, loss), code)
  end subroutine
  subroutine model_evaluate(self, loss, code)
    class(weft_model), intent(in) :: self; real(c_double), intent(out) :: loss
    integer, intent(out), optional :: code
    call finish(c_evaluate(self%handle, loss), code)
  end subroutine
  subroutine model_predict(self, outputs, code)
    class(weft_model), intent(in) :: self
    real(c_double), intent(inout), target, contiguous :: outputs(..)
    integer, intent(out), optional :: code
    call finish(c_predict(self%handle, c_loc(outputs), size(outputs, kind=c_size_t)), code)
  end subroutine
  real(c_double) function model_gradient_norm(self)
    class(weft_model), intent(in) :: self
    call finish(c_gradient_norm(self%handle, model_gradient_norm))
  end function
  integer(c_int64_t) function model_steps(self)
    class(weft_model), intent(in) :: self
    call finish(c_steps(self%handle, model_steps))
  end function
  subroutine model_save(self, folder, code)
    class(weft_model), intent(in) :: self; character(*), intent(in) :: folder
    integer, intent(out), optional :: code
    call finish(c_save(self%handle, c_text(folder)), code)
  end subroutine
  subroutine model_load(self, folder, code)
    class(weft_model), intent(in) :: self; character(*), intent(in) :: folder
    integer, intent(out), optional :: code
    call finish(c_load(self%handle, c_text(folder)), code)
  end subroutine

  integer function model_parameter_count(self)
    class(weft_model), intent(in) :: self
    model_parameter_count = c_parameter_count(self%handle)
  end function
  function model_parameter_name(self, number) result(text)
    class(weft_model), intent(in) :: self
    integer, intent(in) :: number; character(:), allocatable :: text
    text = text_of(c_parameter_name(self%handle, int(number - 1, c_int)))
  end function
  integer(c_size_t) function model_parameter_size(self, name)
    class(weft_model), intent(in) :: self; character(*), intent(in) :: name
    call finish(c_parameter_size(self%handle, c_text(name), model_parameter_size))
  end function
  ! Values in the order of C: the last dim of the parameter is contiguous.
  subroutine model_parameter_get(self, name, values, code)
    class(weft_model), intent(in) :: self; character(*), intent(in) :: name
    real(c_double), intent(out) :: values(:)
    integer, intent(out), optional :: code
    call finish(c_parameter_get(self%handle, c_text(name), values, size(values, kind=c_size_t)), code)
  end subroutine
  subroutine model_parameter_set(self, name, values, code)
    class(weft_model), intent(in) :: self; character(*), intent(in) :: name
    real(c_double), intent(in) :: values(:)
    integer, intent(out), optional :: code
    call finish(c_parameter_set(self%handle, c_text(name), values, size(values, kind=c_size_t)), code)
  end subroutine

end module
