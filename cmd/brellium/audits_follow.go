package main

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"time"

	"github.com/spf13/cobra"

	"github.com/brellium/brellium-go"
)

// followState is the checkpoint of a follow.
type followState struct {
	Filter     auditFilter               `json:"filter"`
	Checkpoint brellium.FollowCheckpoint `json:"checkpoint"`
}

func newAuditsFollow(a *app) *cobra.Command {
	var (
		filter        auditFilter
		since, path   string
		interval, lag time.Duration
		catchUp       bool
	)
	cmd := &cobra.Command{
		Use:   "follow --checkpoint FILE",
		Short: "Print audits as they are updated, as JSON lines",
		Long: `Prints each audit that was updated since the checkpoint, as a JSON line on
standard output, and goes on with later updates until it is interrupted. The
first run starts at --since, or with all audits.

The checkpoint is saved after its audits were printed. After Ctrl-C the next run
goes on exactly there; after a crash it may print the last page once more.
An unchanged audit is occasionally printed twice.`,
		Example: `  brellium audits follow --checkpoint follow.json --since 1h >> audits.jsonl`,
		Args:    none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				return usage("--checkpoint FILE is required.")
			}
			if interval < time.Second || lag <= 0 {
				return usage("--interval must be at least 1s, and --lag more than 0.")
			}
			params, err := filter.params(time.Now())
			if err != nil {
				return err
			}
			state := followState{Filter: filter}
			if state.Checkpoint.From, err = parseTime("since", since, time.Now()); err != nil {
				return err
			}
			var saved followState
			found, err := loadJSON(path, &saved)
			if err != nil {
				return err
			}
			if found {
				if !reflect.DeepEqual(saved.Filter, filter) {
					return usage("%s belongs to a follow with another filter; use the same flags or another file.", path)
				}
				state = saved
			}
			if err := writable(path); err != nil {
				return err
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			a.resume = "Run the same command again to resume."
			if !found { // so that a run without audits does not move --since
				if err := saveJSON(path, state); err != nil {
					return err
				}
			}
			printed := 0
			options := brellium.FollowOptions{Filter: params, Interval: interval, Lag: lag, CatchUp: catchUp}
			for batch, err := range client.Audits.Follow(cmd.Context(), state.Checkpoint, options) {
				if err != nil {
					if !found && cmd.Context().Err() == nil {
						_ = os.Remove(path) // nothing to resume
					}
					return err
				}
				var buf bytes.Buffer
				for i := range batch.Audits {
					if err := json.Compact(&buf, batch.Audits[i].RawJSON()); err != nil {
						return err
					}
					buf.WriteByte('\n')
				}
				if _, err := a.out.Write(buf.Bytes()); err != nil {
					return err
				}
				state.Checkpoint = batch.Checkpoint
				if err := saveJSON(path, state); err != nil {
					return err
				}
				found = true
				printed += len(batch.Audits)
			}
			a.note("%s printed.", count(printed, "audit"))
			return nil
		},
	}
	filter.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&path, "checkpoint", "", "the `FILE` that says how far it is (required)")
	flags.StringVar(&since, "since", "", "where the first run starts, as a `time`")
	flags.DurationVar(&interval, "interval", 30*time.Second, "the pause between two reads of the list")
	flags.DurationVar(&lag, "lag", 30*time.Second, "the longest time until an update appears in a list")
	flags.BoolVar(&catchUp, "catch-up", false, "end once it has reached the present, minus the lag")
	return cmd
}
