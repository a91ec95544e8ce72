/* SPDX-License-Identifier: Apache-2.0 */
/* weft from C: train and evaluate compiled models beside a simulation. A C++ file of the program registers its models and defines
   these functions (weft/c_interface/define.hpp); weft/c_interface/weft.f90 is the Fortran module of the same names.

     weft_world* world; weft_model* model;
     weft_begin(0);
     weft_world_single(&world);
     weft_model_new(world, "mlp", "inputs=3 hidden=64,64 outputs=1", &model);
     weft_optimizer(model, "adamw", "learning_rate=1e-3");
     weft_field(model, "input", x, WEFT_FLOAT64, samples, 1, (size_t[]){3});
     weft_field(model, "target", y, WEFT_FLOAT64, samples, 1, (size_t[]){1});
     for (int step = 0; step < 100; ++step) weft_train(model, &loss);

   Functions return 0, or a code of docs/errors.md; weft_error() then returns the text. Functions with a model are collective: all
   ranks of its world call them, in one order. A rank uses its objects in the thread that made them. */
#ifndef WEFT_C_INTERFACE_H
#define WEFT_C_INTERFACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_world weft_world; /**< the ranks that train together, as this rank sees them */
typedef struct weft_model weft_model; /**< a model over these ranks, its optimizer, and the batch to come */
/** The type of a field's values. */
typedef enum { WEFT_FLOAT32 = 0, WEFT_FLOAT64 = 1, WEFT_INT32 = 2 } weft_type;

/** Starts Kokkos with so many threads, 0: its default, unless the program has started it. */
int weft_begin(int threads);
/** Ends a Kokkos that weft_begin started; worlds and models are freed before. */
int weft_end(void);
const char* weft_version(void); /**< "0.1.0" */
const char* weft_error(void);   /**< the error of the last function that failed in this thread; "" if none has */

/** A world of this process. */
int weft_world_single(weft_world** world);
/** A world of an MPI communicator, given as Fortran's handle (MPI_Comm_c2f, or the integer itself in Fortran). It is duplicated.
   The program's C++ file includes weft/c_interface/mpi.hpp. */
int weft_world_mpi(int fortran_communicator, weft_world** world);
int weft_world_rank(const weft_world* world); /**< this rank, from 0 */
int weft_world_size(const weft_world* world); /**< the number of ranks */
int weft_world_free(weft_world* world);       /**< its models are freed before */

int weft_model_count(void);             /**< the number of registered models */
const char* weft_model_name(int index); /**< the name of a registered model, from 0; NULL beyond the last */

/** A model by its registered name. `options` has KEY=VALUE separated by spaces: those of the model, `seed` of initial values, and
   `zero`, the stage of ZeRO over the ranks. */
int weft_model_new(weft_world* world, const char* name, const char* options, weft_model** model);
int weft_model_free(weft_model* model); /**< frees the model and its optimizer */

/** "adamw" with learning_rate, beta1, beta2, epsilon, weight_decay and clip; "sgd" with learning_rate, momentum, weight_decay and
   clip. It replaces an earlier optimizer and its state. */
int weft_optimizer(weft_model* model, const char* name, const char* options);
int weft_learning_rate(weft_model* model, double rate); /**< of the next steps */

/** Gives a field of the batch: `samples` samples of `shape`, row-major, samples slowest; a Fortran array (shape reversed, samples
   last) has this order. A field of scalars has rank 0. Values of the field's type are read where they lie, in each later call,
   and stay valid until then; those of another floating-point type are converted and copied now. All ranks give equally many
   samples. Another number of samples than that of the fields so far begins another batch, without them. */
int weft_field(weft_model* model, const char* field, const void* values, weft_type type, size_t samples, int rank,
               const size_t* shape);

/** As weft_field, with a copy of all values, which may change or end after the call. */
int weft_field_copy(weft_model* model, const char* field, const void* values, weft_type type, size_t samples, int rank,
                    const size_t* shape);

/** One training step on the fields: gradients, then the optimizer. The loss is the model's before the step, over all ranks. */
int weft_train(weft_model* model, double* loss);
int weft_evaluate(weft_model* model, double* loss); /**< the loss without a step */
/** The model's outputs of this rank's samples, row-major; only the fields that its forward reads are needed. `count` is the
   number of elements of `outputs`. */
int weft_predict(weft_model* model, double* outputs, size_t count);
int weft_gradient_norm(const weft_model* model, double* norm); /**< of the last step's gradients, before clipping */
int weft_steps(const weft_model* model, uint64_t* steps);      /**< training steps so far */

/** A checkpoint of model and optimizer in a folder, which another number of ranks can load. */
int weft_save(weft_model* model, const char* folder);
/** Loads a checkpoint of weft_save into a model with its optimizer, and continues with its step. */
int weft_load(weft_model* model, const char* folder);

int weft_parameter_count(const weft_model* model);                          /**< the number of parameters */
const char* weft_parameter_name(const weft_model* model, int index);        /**< from 0; NULL beyond the last */
int weft_parameter_size(weft_model* model, const char* name, size_t* size); /**< elements of the whole tensor */
/** The values of a whole parameter in double, row-major. `count` is its number of elements. */
int weft_parameter_get(weft_model* model, const char* name, double* values, size_t count);
/** Replaces the values of a whole parameter, given in double, row-major. `count` is its number of elements. */
int weft_parameter_set(weft_model* model, const char* name, const double* values, size_t count);

#ifdef __cplusplus
}
#endif

#endif
