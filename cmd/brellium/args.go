package main

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// none, one and some are how many arguments a command has.
var (
	none = arguments(0, 0)
	one  = arguments(1, 1)
	some = arguments(1, -1)
)

func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		line := cmd.Parent().CommandPath() + " " + cmd.Use
		switch {
		case slices.Contains(args, ""):
			return usage("An argument is empty; the usage is %q.", line)
		case len(args) < least:
			return usage("An argument is missing; the usage is %q.", line)
		case most >= 0 && len(args) > most:
			return usage("There is an argument too many, %q; %q explains the usage.", args[most], cmd.CommandPath()+" --help")
		}
		return nil
	}
}

// noCommand is for the commands that only have subcommands.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	path := cmd.CommandPath()
	cmd.SuggestionsMinimumDistance = 2
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		return usage("There is no command %q; did you mean %q?", path+" "+args[0], path+" "+similar[0])
	}
	var inGroups []string // "brellium upload" for "brellium documents upload"
	for _, group := range cmd.Root().Commands() {
		if sub, _, err := group.Find(args[:1]); err == nil && sub != group {
			inGroups = append(inGroups, strconv.Quote(sub.CommandPath()))
		}
	}
	if len(inGroups) > 0 {
		return usage("There is no command %q; did you mean %s?", path+" "+args[0], strings.Join(inGroups, " or "))
	}
	return usage("There is no command %q; %q lists the commands.", path+" "+args[0], path+" --help")
}

// flagError returns what is wrong with a flag, in a sentence.
func flagError(cmd *cobra.Command, err error) error {
	var (
		unknown *pflag.NotExistError
		missing *pflag.ValueRequiredError
		invalid *pflag.InvalidValueError
	)
	switch {
	case errors.As(err, &unknown):
		flag := "--" + unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" {
			flag = flag[1:]
		}
		return usage("There is no flag %s; %q lists the flags.", clean(flag), cmd.CommandPath()+" --help")
	case errors.As(err, &missing):
		return usage("The flag --%s needs a value; %q explains it.", missing.GetFlag().Name, cmd.CommandPath()+" --help")
	case errors.As(err, &invalid):
		kinds := map[string]string{"int": "a whole number", "float64": "a number", "duration": "a time such as 500ms, 30s, 5m or 2h", "bool": "true or false"}
		flag := invalid.GetFlag()
		if kind := kinds[flag.Value.Type()]; kind != "" {
			return usage("--%s must be %s, not %q.", flag.Name, kind, invalid.GetValue())
		}
		return usage("--%s: %s.", flag.Name, clean(invalid.Unwrap().Error()))
	}
	return usage("%s", sentence(err.Error()))
}

// plainBuiltins gives the commands that cobra makes, help and completion, the
// same errors.
func plainBuiltins(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			cmd.Args, cmd.RunE = noCommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			for _, shell := range cmd.Commands() {
				shell.Args = none
			}
		case "help":
			cmd.RunE = func(_ *cobra.Command, args []string) error {
				found, rest, err := root.Find(args)
				if err != nil || len(rest) > 0 {
					return noCommand(found, rest)
				}
				return found.Help()
			}
		}
	}
}
