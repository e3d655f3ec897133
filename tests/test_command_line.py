"""Mistakes on the command line: at most two lines of answer, exit code 2, and no start."""

import json
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.command_lines import SWEEP, THEIRS, refuse, run, start_afresh

PLAIN, SWEPT, BOTH = ("plain",), ("swept",), ("plain", "swept")
GRID = "-m seed=1,2"
SEARCH = "-m hydra/sweeper=optuna"

# the arguments, the kinds of run, and the parts of the answer: the mistake, the allowed values, the command to type
# Each kind of answer has one case of both kinds of run; all values: tests/trainers/config/test_config.py.
MISTAKES: list[tuple[str, tuple[str, ...], list[str]]] = [
    ("optimizer=adm", BOTH, ["optimizer=adm does not exist", "optimizer=adam?", "lion", "sgd", "ftrl"]),
    ("model=mpl", PLAIN, ["model=mpl does not exist", "model=mlp?", "application, cnn", "linear, mlp, mobilenetv2"]),
    ("optimizer=quite_other", SWEPT, ["optimizer=quite_other does not exist", "adadelta, adagrad, adam"]),
    ("dataset=digit", SWEPT, ["dataset=digit does not exist", "dataset=digits?"]),
    ("optimzer=adam", BOTH, ["'optimzer' is not in the configuration", "'optimizer'?"]),
    ("btach_size=8", PLAIN, ["'btach_size' is not in the configuration", "'batch_size'?\nType: batch_size=8\n"]),
    ("optimizer.beta2=0.9", PLAIN, ["'optimizer.beta2'", "'optimizer.beta_2'?\nType: optimizer.beta_2=0.9\n"]),
    (
        "optimizer=sgd optimizer.beta_2=0.9",
        PLAIN,
        ["'optimizer.beta_2' is not in the configuration with optimizer=sgd. Known", "optimizer.weight_decay"],
    ),
    ("hydra.sweeper.objective=val_loss", SWEPT, ["val_loss would be maximized", "hydra.sweeper.direction=minimize"]),
    ("loss.objective=loss", SWEPT, ["loss would be maximized", "Add hydra.sweeper.direction=minimize, or"]),
    ("loss=mse hydra.sweeper.objective=val_accuracy", SWEPT, ["val_accuracy would be minimized", "direction=maximize"]),
    ("epochs=range(1,100000000)", SWEPT, ["epochs=range(1,100000000)", "more than a million", "a larger step"]),
    (f"hydra.sweeper.study_name={'x' * 300}", SWEPT, ["study_name=xxx", "at most 200 letters"]),
    ("hydra.sweeper.n_trails=3", SWEPT, ["'hydra.sweeper.n_trails'", "'hydra.sweeper.n_trials'?"]),
    (
        "hydra.launcher.gres=gpu:a100:1,gpu:v100:1",
        SWEPT,
        ["gres=gpu:a100:1,gpu:v100:1: all trials", "cluster=plain,power9"],
    ),
    ("hydra.verbose=true,false", SWEPT, ["hydra.verbose=true,false: all trials share", "Type one value"]),
    ("hydra/sweeper=optna", SWEPT, ["hydra/sweeper=optna does not exist", "hydra/sweeper=optuna?", "grid"]),
    ("hydra/launcher=lokal", SWEPT, ["hydra/launcher=lokal does not exist", "hydra/launcher=local?"]),
    ("lr=0", BOTH, ["lr=0.0", "must be > 0", "try lr=0.001"]),
    ("lr=abc", BOTH, ["lr=abc", "'abc'", "Float.\nType a number, as in lr=0.001"]),
    ("lr=", PLAIN, ["lr=", "Float"]),
    ("lr=[", BOTH, ["'lr=['", "cannot be read", "key=value"]),
    (
        "batch_per_gpu=8 batch_size=32",
        BOTH,
        ["batch_per_gpu=8 (batch_size=8) and batch_size=32 conflict.\nRemove one."],
    ),
    ("batch_size=1.5", SWEPT, ["batch_size=1.5", "Integer"]),
    ("epochs=1e3", PLAIN, ["epochs=1e3: it must be a whole number.\nType: epochs=1000\n"]),
    ("epochs=100000000000000000", PLAIN, ["epochs=1000", "more than 1,000,000 epochs", "try epochs=100"]),
    ("steps=1000000000000000", PLAIN, ["steps=10000", "makes more than 1,000,000 epochs"]),
    ("target=97", SWEPT, ["target=97: val_accuracy is between 0 and 1; try target=0.97"]),
    (
        "lr_schedule=cosine lr_schedule.warmup_epochs=9",
        PLAIN,
        ["lr_schedule.warmup_epochs=9 is longer", "epochs=5", "try"],
    ),
    ("+model.fine_tune=false", PLAIN, ["model.fine_tune=False: this model has no base", "try model=mobilenetv2"]),
    (
        "model=mobilenetv2 dataset.size=32 model.fine_tune_lr=1e-5",
        SWEPT,
        ["model.fine_tune_lr=1e-05", "has no effect with model.head_epochs=0", "try lr=1e-05, or model.head_epochs=2"],
    ),
    (
        "+dataset.examples=50",
        PLAIN,
        ["dataset.examples is no setting of trainers.data.sources.digits", "its settings: none"],
    ),
    ("study=line_fit dataset=digits", SWEPT, ["model.initial_weight is no setting of", "model.hidden, model.act"]),
    ("study=line_fit study.scale=smal", PLAIN, ["'study.smal.", "Did you mean 'study.small."]),
    ("study=line_fit study.scale=smal epochs=1", SWEPT, ["'study.smal.lr' not found.\nType: study.scale=small\n"]),
    ("hydra.run.dir=/proc/no", PLAIN, ["the run's folder cannot be written", "/proc/no", "hydra.run.dir=/where"]),
    ("hydra.sweep.dir=/proc/no", SWEPT, ["the study's folder /proc/no cannot be written", "hydra.sweep.dir=/where"]),
    ("ranks=2", PLAIN, ["several processes", "Add -m"]),
    ("gpus=64 batch_size=64", BOTH, ["gpus=64", "this machine has", "GPUs"]),
    ("optimizer.beta_1=1.5", SWEPT, ["optimizer.beta_1=1.5", "< 1"]),
    (
        "dataset.augment=light dataset.augment.rotation=5",
        PLAIN,
        ["'dataset.augment.rotation' is not in the configuration. Another typed value replaces its section"],
    ),
    (
        "dataset.augment.rotation=5 dataset.augment=light",
        BOTH,
        ["dataset.augment=light and dataset.augment.rotation=5 conflict", "'dataset.augment={rotation: 5, ...}'"],
    ),
    (
        "dataset.augment.rotation=5 dataset.augment=light,strong",
        SWEPT,
        ["dataset.augment=light and dataset.augment.rotation=5 conflict"],
    ),
    ("dataset=npz dataset.path=no/such.npz", BOTH, ["no/such.npz", "does not exist", ".npz file"]),
    ("dataset=npz dataset.path={files}", PLAIN, ["is a folder", ".npz file"]),
    ("dataset=npz dataset.path={files}/text.npz", PLAIN, ["text.npz is no .npz file", "numpy.savez"]),
    ("dataset=npz dataset.path={files}/half.npz", SWEPT, ["half.npz is no .npz file", "numpy.savez"]),
    (
        "dataset=mnist dataset.path={files}/lacking.npz",
        SWEPT,
        ["lacks y_train", "it contains x_test, x_train, y_test", "numpy.savez(path, x_train=x_train"],
    ),
    (
        "dataset=npz dataset.path={files}/pickled.npz",
        BOTH,
        ["y_train contains pickled objects", "never loaded", "Store numbers"],
    ),
    (
        "dataset=image_folder dataset.path={files}/images",
        SWEPT,
        ["images/cat/a.jpg cannot be read as an image", "dataset.skip_broken=true"],
    ),
    ("trainer._target_=no_such_module.f", BOTH, ["no_such_module", "there is no module"]),
    (
        "trainer._target_=trainers.trainer.trian",
        PLAIN,
        ["there is no 'trian' in trainers.trainer", "did you mean train"],
    ),
    ("trainer._target_=nothing", PLAIN, ["trainer._target_=nothing", "my_module.nothing"]),
    ("trainer=own", PLAIN, ["trainer._target_ is missing", "dotted name of a callable, such as my_module.f"]),
    ("trainer.preload=torch", PLAIN, ["trainer.preload=torch", "a list of names, such as [torch,numpy]"]),
    ("optimizer=adam,sgd", PLAIN, ["optimizer=adam,sgd", "-m"]),
    ("lr=0.001,0.01", PLAIN, ["lr=0.001,0.01", "-m", "lr=[0.001,0.01]"]),
    ("lr=range(1,3)", PLAIN, ["lr=range(1,3)", "-m"]),
    ("lr=interval(0.1,1)", PLAIN, ["lr=interval(0.1,1)", "-m"]),
    ("lr=interval(0.1,1)", SWEPT, ["lr=interval", "grid", "hydra/sweeper=optuna", "lr=0.1,1.0"]),
    ("lr=tag(log,interval(0.1,1))", SWEPT, ["lr=tag(log,interval(0.1,1)): a grid needs", "lr=0.1,1.0"]),
    ("lr=range(1,10,0)", SWEPT, ["lr=range(1,10,0)", "no end", "lr=range(1,10,2)"]),
    ("lr=range(1,inf)", SWEPT, ["lr=range(1,inf)", "no end", "lr=range(1,10,2)"]),
    ("epochs=5,10 steps=100", SWEPT, ["epochs=5 and steps=100 are two budgets.\nRemove epochs=5, or type steps=null"]),
    (
        "hydra.launcher.gpus_per_node=2 hydra/launcher=slurm gpus=1",
        SWEPT,
        ["hydra.launcher.gpus_per_node=2 and gpus=1 conflict.\nType gpus=2, and remove hydra.launcher.gpus_per_node"],
    ),
    ("lr=1 -m epochs=2", PLAIN, ["epochs=2: all keys are typed on one side of a flag", "sweep.py -m lr=1 epochs=2"]),
    ("-help", PLAIN, ["-help: there is no such flag.\nFor all settings, type: --help\n"]),
    ("lr=range(3,1)", SWEPT, ["lr=range(3,1)", "no values"]),
    ("lr=0.1,0.2,0", SWEPT, ["lr=0.0", "must be > 0"]),
    ("hydra/sweeper=optuna n_trials", PLAIN, ["n_trials", "a setting of the sweeper", "-m hydra.sweeper.n_trials="]),
    ("hydra.sweeper.notify=https://a/b", BOTH, ["hydra.sweeper.notify: the address", "notify='${oc.env:WEBHOOK}'"]),
    ("hydra.sweeper.notify=[mial,me]", SWEPT, ["the command mial does not exist here"]),
    ("hydra.sweeper.notify=${{oc.env:NO_SUCH}}", SWEPT, ["Environment variable 'NO_SUCH' not found"]),
    (
        "hydra.sweeper.exclude=[lr<0.1]",
        SWEPT,
        ["cannot be read", "in quotes, as in 'hydra.sweeper.exclude=[\"lr<0.001"],
    ),
    ('hydra.sweeper.also="lr=0.3"', SWEPT, ["Invalid value", "in quotes, as in 'hydra.sweeper.also=[\"optimizer=adam"]),
    (
        "hydra.sweeper.start={{lr:1}}",
        SWEPT,
        [
            "start={lr:1}: ",
            "\nType a list of points in braces, as in 'hydra.sweeper.start=[{lr: 0.001, batch_size: 64}]'",
        ],
    ),
    ("hydra.sweeper.start=[1]", SWEPT, ["Cannot assign int", "\nType a list of points in braces"]),
    ("hydra.sweeper.start=[lr=1]", SWEPT, ["cannot be read\nType a list of points in braces"]),
    ("lr=logspace(1,100,num=3)", SWEPT, ["it needs low, high and count, not num=3.\n", "'lr=logspace(1e-4,1e-1,7)'"]),
    (
        "opt=zip([1,2],[3,4])",
        SWEPT,
        ["zip(...): '[1,2]' has no key.\nType, for example: 'opt=zip(optimizer=[adam,sgd], lr=[0.001,0.1])'"],
    ),
    ("lr=zip(1,2)", SWEPT, ["'1' has no key.\nType, for example: 'lr_and_more=zip("]),
    ("opt=zip(lr=[1,2],btach_size=[3,4])", SWEPT, ["Did you mean 'batch_size'?\nType in its place: batch_size\n"]),
    (
        "opt=zip(optimizer=[adam,sgd],optimizer.beta_2=[0.1,0.2])",
        SWEPT,
        ["grid with optimizer=adam alone", "\n'hydra.sweeper.also=[\"optimizer=adam optimizer.beta_2=0.1,0.2\"]'"],
    ),
    ("lr=LogUniform(0.1,1)", SWEPT, ["Unknown function 'LogUniform'.\nType: 'lr=tag(log, interval(0.1,1))'"]),
    ("lr=intervall(0.1,1)", SWEPT, ["Unknown function 'intervall'.\nType: 'lr=interval(0.1,1)'"]),
    ("hydra.sweeper.pruner=5", SWEPT, ["hydra.sweeper.pruner=5: a pruner is chosen with slashes"]),
    (
        "hydra/sweeper=grid +hydra.sweeper.pruner.min_resource=3",
        SWEPT,
        ["min_resource=3: no pruner is chosen.\nRemove it, or add a pruner, such as hydra/sweeper/pruner=median"],
    ),
    ("lr=loguniform(-4,-1)", SWEPT, ["'loguniform'.\nType: 'lr=tag(log, interval(0.1,1.0))'"]),
    ("lr=linspace(0.1,1,3)", SWEPT, ["'linspace'.\nChoose one of: choice, "]),
    ("hydra.sweeper.extend=yess", SWEPT, ["\nType hydra.sweeper.extend=true or hydra.sweeper.extend=false"]),
    ("hydra.sweeper.sampler=none", SWEPT, ["Type hydra/sweeper/sampler=NAME, one of: cmaes, default, gp,"]),
    ("hydra.sweeper.pruner=none", SWEPT, ["\nType hydra/sweeper/pruner=none"]),
    ("hydra.sweeper.objective=[a,a]", SWEPT, ["hydra.sweeper.objective: a is named twice"]),
    (
        'hydra/sweeper=optuna lr=interval(0.1,1) hydra.sweeper.also=["btach_size=3"]',
        SWEPT,
        ["hydra.sweeper.also: 'btach_size' is not in", "configuration.\nDid you mean 'batch_size'?"],
    ),
    ("--multirun=true seed=1,2", PLAIN, ["--multirun=true: there is no such flag.\nFor a sweep, type: -m\n"]),
    ("--cfg jobb", PLAIN, ["--cfg/-c: invalid choice: 'jobb'", "\nAll flags are in --hydra-help\n"]),
    ("--config-name=confg", BOTH, ["--config-name=confg: ", "conf has no such file.\nChoose one of: config\n"]),
    ("lr=0,001", SWEPT, ["\nlr=0,001 is two values. For one with a decimal point, type: lr=0.001\n"]),
    ("lr=glob(*)", SWEPT, ["nothing would run.\nglob(...) lists choices of a group, and lr is none"]),
    ("+model=cnn,mlp", SWEPT, ["leave out the plus.\nType: model=cnn,mlp\n"]),
    ("help", PLAIN, ["'help' cannot be read", "All keys are in --help"]),
    ("lr=0.1,", PLAIN, ["'lr=0.1,' cannot be read: beside a comma a value is missing.\nType: lr=0.1\n"]),
    ("--lr=0.1", PLAIN, ["--lr=0.1: a key is typed without dashes", "Type: lr=0.1"]),
    ("tracking=false", SWEPT, ["tracking=false: a choice of tracking is a name.\nChoose one of: mlflow, none"]),
    ("hydra.sweeper=optuna", PLAIN, ["chosen with a slash", "Type: hydra/sweeper=optuna"]),
    ("hydra.sweeper.sampler=tpe", SWEPT, ["hydra.sweeper.sampler=tpe", "hydra/sweeper/sampler=tpe"]),
    ("hydra/pruner=asha", SWEPT, ["a setting of the sweeper.\nType: hydra/sweeper/pruner=asha\n"]),
    ("hydra.sampler=tpe", PLAIN, ["a setting of the sweeper.\nType: -m hydra/sweeper/sampler=tpe\n"]),
    ("sampler=tpe", PLAIN, ["'sampler' is not in the configuration", "-m hydra/sweeper/sampler=tpe"]),
    ("hydra/launcher=slurm", PLAIN, ["hydra/launcher=slurm is for a sweep", "-m is missing"]),
    ("learning_rate=0.1", PLAIN, ["'learning_rate' is not in the configuration", "Did you mean 'lr'?"]),
    ("optimizer.lr=0.1", PLAIN, ["'optimizer.lr' is not in the configuration", "Did you mean 'lr'?"]),
    ("LR=0.1", PLAIN, ["'LR' is not in the configuration", "Did you mean 'lr'?"]),
    ("dataset=MNIST", PLAIN, ["dataset=MNIST does not exist", "dataset=mnist?"]),
    ("dataset=./my.npz", PLAIN, ["dataset=./my.npz does not exist", "Choose one of: cifar10, digits"]),
    ("hydra/sweeper/sampler=bayes", SWEPT, ["bayes does not exist", "Did you mean hydra/sweeper/sampler=gp?"]),
    (
        "hydra/sweeper=random",
        SWEPT,
        ["hydra/sweeper=random does not exist", "hydra/sweeper/sampler=random?\nChoose one of: grid, optuna"],
    ),
    ("hydra.sweeper.n_trials=100000000", SWEPT, ["hydra.sweeper.n_trials=100000000", "at most 1000000"]),
    ("trainer.preload=nothing", SWEPT, ["hydra.launcher", "list"]),
    ("n_trials=5", PLAIN, ["'n_trials' is not in the configuration", "-m hydra.sweeper.n_trials="]),
    (
        "hydra/sweeper=optuna hydra.sweeper.n_trials=5",
        PLAIN,
        ["-m is missing", "sweep.py -m hydra/sweeper=optuna hydra"],
    ),
    ("hydra.sweeper.n_jobs=5 lr=0.1", PLAIN, ["-m is missing", "sweep.py -m hydra.sweeper.n_jobs=5 lr=0.1"]),
    (
        "optimizer=adam,sgd optimizer.beta_2=0.9",
        SWEPT,
        [
            "optimizer=sgd has no 'optimizer.beta_2'",
            r"+hydra.sweeper.conditional_params={optimizer\=adam: {optimizer.beta_2",
        ],
    ),
    (
        "optimizer=adam,momentum optimizer.momentum=0.9",
        SWEPT,
        [
            "optimizer=adam has no 'optimizer.momentum'",
            r"+hydra.sweeper.conditional_params={optimizer\=momentum: {optimizer.momentum",
        ],
    ),
    (
        r"hydra.sweeper.conditional_params={{optimizer\=adam:{{optimizer.beta_2:0.9}}}}",
        SWEPT,
        ["'hydra.sweeper.conditional_params' is in the conf", "To add them: '+hydra.sweeper.conditional_params={opt"],
    ),
    ("hydra.launcher.n_jobs=2", BOTH, ["hydra.launcher.n_jobs is no setting of", "hydra.sweeper.n_jobs="]),
    ("hydra.launcher.n_workers=2", SWEPT, ["of the sweeper.\nType: hydra.sweeper.n_jobs=2\n"]),
    # signs, spaces and calls that Hydra's grammar cannot read
    ("optimizer=adam,sgd lr", SWEPT, ["'lr' cannot be read: = and a value are missing.\nType, for example: lr=0.001"]),
    ("lr:0.1,0.2", PLAIN, ["'lr:0.1,0.2' cannot be read: between a key and its value is one =.\nType: -m lr=0.1,0.2"]),
    ("lr=[0.1,0.2", SWEPT, ["'lr=[0.1,0.2' cannot be read: ] is missing at its end.\nType: lr=0.1,0.2\n"]),
    ("lr=0.1;0.2", SWEPT, ["between two values is a comma.\nType: lr=0.1,0.2\n"]),
    ("optimizer=(adam,sgd)", SWEPT, ["the values of a sweep have no brackets.\nType: optimizer=adam,sgd\n"]),
    ("lr=\u201c0.1\u201d", SWEPT, ["\u201c is no sign of a shell.\nType: lr=0.1\n"]),
    ("\u2013m seed=1,2", PLAIN, ["\u2013 is no sign of a shell.\nType: -m\n"]),
    ("lr=interval(1)", SWEPT, ["required argument: 'end'.\nType, for example: 'lr=interval(0.1,1.0)'\n"]),
    ("lr=loginterval(0.1,1)", SWEPT, ["'loginterval'.\nType: 'lr=tag(log, interval(0.1,1))'\n"]),
    ("lr=0.1,seed=2", SWEPT, ["between two keys is a space.\nType: lr=0.1 seed=2\n"]),
    ("seed=1-5", PLAIN, ["\nTo sweep these values, type: -m 'seed=range(1,6)'\n"]),
    ("model.hidden=1,2", SWEPT, ["\nType: 'model.hidden=[1],[2]'\n"]),
    # keys and choices in another form
    ("lr.x=1,2", SWEPT, ["'lr.x' is not in the configuration: lr is a value.\nType: lr=1,2\n"]),
    ("lr@x=1", SWEPT, ["lr@x=1: lr is no group.\nType: lr=1\n"]),
    ("+hydra/launcher=slurm", SWEPT, ["leave out the plus.\nType: hydra/launcher=slurm\n"]),
    ("~modle", SWEPT, ["'modle' is not in the configuration. Did you mean 'model'?\nType: ~model\n"]),
    ("~lr", SWEPT, ["optimizer.learning_rate: Interpolation key 'lr' not found.\nRemove ~lr\n"]),
    ("~model", BOTH, ["model._target_ is missing", "\nRemove ~model\n"]),
    ("hydra.job=x", SWEPT, ["hydra.job=x: ", "\nType one of its keys, as in hydra.job.name=x\n"]),
    ("~x=5", SWEPT, ["'x' is not in the configuration.\nRemove ~x\n"]),
    ("optimizer/lr=1,2", SWEPT, ["Did you mean 'lr'?\nType: lr=1,2\n"]),
    ("model=null", BOTH, ["model=null: a choice of model is a name.\nChoose one of: application, cnn"]),
    ("optimzer.name=adam,sgd", SWEPT, ["Choices of optimizer have no key.\nType: optimizer=adam,sgd\n"]),
    ("+hydra.callbacks.a._target_=no.f", SWEPT, ["hydra.callbacks.a._target_ cannot be imported: No module"]),
    ("sweeper.n_jobs=2", SWEPT, ["It is a setting of the sweeper.\nType: hydra.sweeper.n_jobs=2\n"]),
    ("gpus_per_node=v100:2", SWEPT, ["\nType: gpus=2 hydra/launcher=slurm hydra.launcher.gres=gpu:v100\n"]),
    ("hydra.launcher.partitoin=a", SWEPT, ["'partition'? It is", "Type: hydra/launcher=slurm hydra.launcher.partit"]),
    ("hydra.sweeper.seed=1", SWEPT, ["Did you mean 'seed'?\nType: seed=1\n"]),
    ("+hydra.launcher.n_jobs=2", SWEPT, ["hydra.launcher.n_jobs", "Type: hydra.sweeper.n_jobs=2"]),
    ("hydra.sweeper.timeout_min=2", SWEPT, ["a setting of the launcher", "Type: hydra.launcher.timeout_min=2"]),
    (
        "hydra.sweeper.partition=a",
        SWEPT,
        ["of hydra/launcher=slurm", "Type: hydra/launcher=slurm hydra.launcher.partition=a"],
    ),
    (
        "hydra.launcher.partition=a",
        SWEPT,
        ["of hydra/launcher=slurm", "Type: hydra/launcher=slurm hydra.launcher.partition=a"],
    ),
    ("timeout_min=2", PLAIN, ["'timeout_min' is not in the", "of the launcher", "-m hydra.launcher.timeout_min=2"]),
    (
        "hydra.launcher.timeot_min=2",
        SWEPT,
        ["'hydra.launcher.timeot_min'", "Did you mean 'hydra.launcher.timeout_min'?"],
    ),
    ("hydra.sweeper.n_trials=0", SWEPT, ["hydra.sweeper.n_trials=0", "1 or more"]),
    ("hydra.sweeper.direction=up", SWEPT, ["hydra.sweeper.direction=up", "minimize or maximize"]),
    ("hydra.sweeper.target=nan", SWEPT, ["hydra.sweeper.target=nan", "must be a number"]),
    ("hydra.sweeper.learn_from=mine", SWEPT, ["is not a ListConfig", "Type a list: 'hydra.sweeper.learn_from=[mine]'"]),
    ("hydra.sweeper.memory_axes=[batchsize/gpus]", SWEPT, ["memory_axes: batchsize is not in", "memory_axes=[]"]),
    ("tracking_uri=a", PLAIN, ["'tracking_uri' is not", "Did you mean 'tracking.uri'?"]),
    ("hydra.sweeper.tracking_url=a", SWEPT, ["Did you mean 'tracking.uri'?"]),
    ("hydra.sweeper.max_failure_rate=2", SWEPT, ["max_failure_rate=2", "between 0 and 1"]),
    ("hydra.sweeper.study_name=a/b", SWEPT, ["study_name=a/b", "not a folder's name"]),
    ("hydra.sweeper.study_name=-x", SWEPT, ["study_name=-x", "first dot or dash"]),  # because -x would be an option
    ("hydra.sweeper.study_name=archive", SWEPT, ["'archive' is reserved.", "Choose another study_name"]),
    (
        "hydra/launcher=slurm hydra.launcher.driver_timeout_min=90",
        SWEPT,
        [
            "driver_timeout_min=90: it is",
            "Add hydra.launcher.driver=job, or remove hydra.launcher.driver_timeout_min=90",
        ],
    ),
    ("hydra/launcher=slurm hydra.sweeper.study_name=100%", SWEPT, ["SLURM reads the %", "study_name"]),
    (r"hydra/launcher=slurm hydra.sweeper.study_name='a\b'", SWEPT, ["SLURM reads the \\", "study_name"]),
    (f"{SEARCH} lr=interval(0.1,inf)", PLAIN, ["lr=interval(0.1, inf)", "no end", "lr=interval(0.1,1.0)"]),
    (f"{SEARCH} lr=interval(1,0.1)", PLAIN, ["lr=interval(1.0, 0.1)", "smaller"]),
    (f"{SEARCH} lr=tag(log,interval(0,1))", PLAIN, ["lr", "logarithmic", "above 0"]),
    (f"{SEARCH} lr=interval(-1,1)", PLAIN, ["lr=-1.0", "must be > 0"]),
    (f"{SEARCH} batch_size=interval(8,64)", PLAIN, ["batch_size is a whole number", "batch_size=int(interval(8,64))"]),
    (
        f"{SEARCH} lr=1,2 hydra.sweeper.start=[{{{{lr:3}}}}]",
        PLAIN,
        ["start=[{lr:3}]: lr=3 is not in the", "Choose from lr=1,2"],
    ),
    (f"{SEARCH} lr=1,2 hydra.sweeper.learn_from=[a]", PLAIN, ["learn_from=a: there is no such earlier study"]),
    (f"{SEARCH} lr=0.1", PLAIN, ["a search needs a search space", "interval(1e-4, 1e-1)"]),
    (f"{SEARCH} optimizer=adam,adm", PLAIN, ["optimizer=adm does not exist", "optimizer=adam?"]),
    (f"{SEARCH} hydra/sweeper/sampler=tep lr=1,2", PLAIN, ["hydra/sweeper/sampler=tep", "sampler=tpe?"]),
]


class Trap:
    """An object that leaves a trace when the object is unpickled."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._trace),)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    numbers = np.zeros((4, 2))
    (folder / "text.npz").write_text("no archive")
    np.savez(folder / "lacking.npz", x_train=numbers, x_test=numbers, y_test=numbers)
    trap = np.array([Trap(folder / "unpickled")] * 4, dtype=object)
    np.savez(folder / "pickled.npz", x_train=numbers, y_train=trap, x_test=numbers, y_test=numbers)
    np.savez(folder / "half.npz", x_train=numbers, y_train=numbers, x_test=numbers, y_test=numbers)
    whole = (folder / "half.npz").read_bytes()
    (folder / "half.npz").write_bytes(whole[: len(whole) // 2])
    for name in ("cat", "dog"):
        (folder / "images" / name).mkdir(parents=True)
        (folder / "images" / name / "a.jpg").write_text("no image")
    return folder


# A command line, a mistake in it, and what its answer advises to type in place of the mistake
HERE, SEARCHED, ALONE = "-m seed=1,2", "-m hydra/sweeper=optuna lr=0.1,0.01", ""
ADVISED = [
    (HERE, "hydra.launcher.mem_gb=512M", "hydra.launcher.mem_gb=0.5"),
    (HERE, "hydra.launcher.timeout_min=1:30:00", "hydra.launcher.timeout_min=90"),
    (HERE, "hydra.sweeper.max_hours=8h", "hydra.sweeper.max_hours=8"),
    (HERE, "hydra.sweeper.max_failure_rate=20%", "hydra.sweeper.max_failure_rate=0.2"),
    (HERE, "epochs=3k", "epochs=3000"),
    (HERE, "dataset.validation_split=20%", "dataset.validation_split=0.2"),
    (HERE, "optimzer=adam,sgd", "optimizer=adam,sgd"),
    (HERE, "lr=0.1, 0.01", "lr=0.1,0.01"),
    (HERE, "batch_size 64", "batch_size=64"),
    (HERE, "--target 0.9", "target=0.9"),
    (HERE, "--n-trials=3", "hydra.sweeper.n_trials=3"),
    (HERE, "hydra/launcher=here", "hydra/launcher=local"),
    (
        SEARCHED,
        "hydra.sweeper.pruner.min_resource=0 hydra/sweeper/pruner=asha",
        "++hydra.sweeper.pruner.min_resource=auto",
    ),
    (SEARCHED, "hydra/sweeper=bayes", "hydra/sweeper=optuna"),
    (SEARCHED, "hydra/sweeper=tpe", "hydra/sweeper=optuna hydra/sweeper/sampler=tpe"),
    (SEARCHED, "--max-hours 8", "hydra.sweeper.max_hours=8"),
    (HERE, "hydra.launcher.mem=512M", "hydra.launcher.mem_gb=0.5"),
    (HERE, "hydra.sweeper.max_failure_rate=20", "hydra.sweeper.max_failure_rate=0.2"),
    (ALONE, "launcher=local", "-m hydra/launcher=local"),
    (ALONE, "lr=[0.1,0.01]", "-m lr=0.1,0.01"),
    (ALONE, "lr=0.1 , 0.01", "-m lr=0.1,0.01"),
    (ALONE, "--launcher local", "-m hydra/launcher=local"),
    (ALONE, "-multirun", "-m"),
    (ALONE, "--dry-run", "-m hydra.sweeper.preview=true"),
]


@pytest.mark.parametrize("line", [HERE, SEARCHED, ALONE], ids=["grid", "search", "alone"])
def test_advice_can_be_typed(line: str, tmp_path: Path) -> None:
    corrected = []
    for typed_in, wrong, right in ADVISED:
        if typed_in != line:
            continue
        done = refuse([SWEEP, *line.split(), *wrong.split()], tmp_path)
        advice = re.findall(r"(?:[Tt]ype: |Did you mean )(.*?)\??$", done.err, re.MULTILINE)
        assert done.code == 2, done.err
        assert advice[-1:] == [right], done.err
        corrected += [*wrong.split()[1:]] if right.startswith("++") else []
        corrected += shlex.split(right)
    words = [word for word in [*line.split(), *corrected] if word != "-m"]
    done = refuse([SWEEP, "-m", *words, "hydra.sweeper.preview=true"], tmp_path)
    assert done.code == 0, done.err
    assert "none was started" in done.out


@dataclass(frozen=True)
class Mistake:
    line: str
    expected: list[str]


def mistakes() -> dict[str, Mistake]:
    prefix = {"plain": "", "swept": f"{GRID} "}
    return {
        f"{prefix[way]}{text}": Mistake(f"{prefix[way]}{text}", expected)
        for text, ways, expected in MISTAKES
        for way in ways
    }


IN_A_PROCESS = list(mistakes())[::10]
"""Some of all kinds; the others are answered in this one."""
FIRST = list(mistakes())[::5]
"""Some more of all kinds, which are answered in each run of the tests; the others are long tests."""


def _params() -> list[object]:
    return [pytest.param(name, marks=[] if name in FIRST else [pytest.mark.long]) for name in mistakes()]


@pytest.mark.parametrize("name", _params())
def test_a_mistake_is_answered(name: str, files: Path, tmp_path: Path) -> None:
    answer = run if name in IN_A_PROCESS else refuse
    done = answer([SWEEP, *mistakes()[name].line.format(files=files).split()], tmp_path)
    lines = [line for line in done.err.splitlines() if line.strip()]
    assert done.code == 2, done.err
    assert 1 <= len(lines) <= 2, done.err
    assert "Traceback" not in done.err
    assert not done.out.strip()
    for fragment in mistakes()[name].expected:
        assert fragment in done.err
    assert not (done.folder / "multirun").exists()
    assert not (done.folder / "mlflow.db").exists()


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("+optimzer=adam,sgd", "+optimzer: no code reads this key, so that its values change nothing. Did you mean"),
        ("+trainer.patience=3", "+trainer.patience: no code reads this key"),
        ("+base=0.1 lr=${base}", ""),
        ("+other=1 trainer=own trainer._target_=builtins.print", ""),
        ("optimizer=[adam,sgd]", "is one choice, of all these files. To sweep them, type: optimizer=adam,sgd"),
        ("lr=1,5", "lr=1,5 is two values. For one with a decimal point, type: lr=1.5"),
        ("lr=0.1,0.2 lr=0.3", "lr=0.3 replaces lr=0.1,0.2"),
        ("lr=range(0.1,0.3)", "is one value, 0.1, because its step is 1. For several, type a step"),
    ],
)
def test_values_without_effect_are_reported_once(line: str, note: str, tmp_path: Path) -> None:
    done = refuse([SWEEP, *f"{GRID} {line} hydra.sweeper.preview=true".split()], tmp_path)
    assert done.code == 0, done.err
    assert done.out.count(note) == 1 if note else "no code reads" not in done.out


def test_pickled_objects_are_never_loaded(files: Path, tmp_path: Path) -> None:
    assert refuse([SWEEP, "dataset=npz", f"dataset.path={files}/pickled.npz"], tmp_path).code == 2
    assert not (files / "unpickled").exists()


def test_the_whole_traceback_can_be_asked_for(tmp_path: Path) -> None:
    done = run([SWEEP, "optimizer=adm"], tmp_path, {"HYDRA_FULL_ERROR": "1"})
    assert done.code == 1
    assert "Traceback" in done.err
    assert "Could not find 'optimizer/adm'" in done.err


def test_a_bug_in_a_trainer_is_no_mistake_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def train(cfg, trial):\n    raise ValueError('from inside the trainer')\n")
    done = run([SWEEP, "trainer._target_=broken.train", "tracking=none"], tmp_path, {"PYTHONPATH": str(tmp_path)})
    assert done.code == 1
    assert "from inside the trainer" in done.err
    assert "broken.py" in done.err


def test_single_run_returns_the_result_of_its_trainer(tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text(
        "import json, pathlib\n"
        "def train(cfg, trial):\n"
        "    pathlib.Path('seen.json').write_text(json.dumps([cfg.lr, cfg.batch_size]))\n"
        "    return {'val_accuracy': 0.5}\n"
    )
    line = ["trainer._target_=tiny.train", "lr=0.25", "batch_size=8", "tracking=none"]
    done = run([SWEEP, *line], tmp_path, {"PYTHONPATH": str(tmp_path)})
    assert done.code == 0, done.err
    assert json.loads((tmp_path / "seen.json").read_text()) == [0.25, 8]


@pytest.mark.parametrize("flag", ["--help", "--hydra-help", "--info=searchpath"])
def test_help_is_given(flag: str, tmp_path: Path) -> None:
    done = run([SWEEP, flag], tmp_path)
    assert done.code == 0, done.err
    assert not list(tmp_path.iterdir())


def test_help_names_the_settings_of_a_foreign_app(tmp_path: Path) -> None:
    done = run([THEIRS, "hydra/help=sweepyard", "hydra/sweeper=optuna", "--help"], tmp_path)
    assert done.code == 0, done.err
    for setting in ("hydra.sweeper.n_trials=20", "hydra.launcher.mem_gb=null", "hydra.launcher.partition=null"):
        assert f"\n  {setting} " in done.out


def test_help_may_be_read_in_part(tmp_path: Path) -> None:
    process = start_afresh([SWEEP, "--help"], tmp_path, {"PYTHONSAFEPATH": "1"})  # without the folder of sweep.py
    assert process.stdout is not None
    assert "powered by Hydra" in process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    assert (process.communicate(timeout=60)[1], process.returncode) == ("", 0)
