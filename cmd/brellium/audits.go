package main

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brellium/brellium-go"
)

// auditStatuses are the statuses that the API's description knows.
var auditStatuses = []string{"todo", "processing", "in_progress", "error", "complete"}

// auditFilter is the filter of a list of audits, as given in flags.
type auditFilter struct {
	Status       string   `json:"status,omitempty"`
	AnyStatus    bool     `json:"any_status,omitempty"`
	Set          string   `json:"set,omitempty"`
	Document     string   `json:"document,omitempty"`
	Flags        []string `json:"flags,omitempty"`
	Since        string   `json:"since,omitempty"`
	Until        string   `json:"until,omitempty"`
	CreatedSince string   `json:"created_since,omitempty"`
	CreatedUntil string   `json:"created_until,omitempty"`
}

// register adds the flags that export and follow share.
func (f *auditFilter) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.Status, "status", "", "only audits with this `status`: "+strings.Join(auditStatuses, ", "))
	flags.BoolVar(&f.AnyStatus, "any-status", false, "allow other values of --status, for a status that the API has added")
	flags.StringVar(&f.Set, "set", "", "only audits of the question set with this `ID`")
	flags.StringVar(&f.Document, "document", "", "only audits of the document with this `ID`")
	flags.StringArrayVar(&f.Flags, "flag", nil, "only audits with this `flag`; repeat it for audits with any of several")
	flags.StringVar(&f.CreatedSince, "created-since", "", "only audits created after this `time`")
	flags.StringVar(&f.CreatedUntil, "created-until", "", "only audits created before this `time`")
}

func (f *auditFilter) params(now time.Time) (p brellium.AuditListParams, err error) {
	if f.Status != "" && !f.AnyStatus && !slices.Contains(auditStatuses, f.Status) {
		return p, usage("There is no status %q; use one of %s, or add --any-status if the API has a new one.", f.Status, strings.Join(auditStatuses, ", "))
	}
	p = brellium.AuditListParams{Status: brellium.AuditStatus(f.Status), SetID: f.Set, DocumentID: f.Document, Flags: f.Flags}
	for _, t := range []struct {
		flag, text string
		into       *time.Time
	}{
		{"since", f.Since, &p.UpdatedAfter}, {"until", f.Until, &p.UpdatedBefore},
		{"created-since", f.CreatedSince, &p.CreatedAfter}, {"created-until", f.CreatedUntil, &p.CreatedBefore},
	} {
		if *t.into, err = parseTime(t.flag, t.text, now); err != nil {
			return p, err
		}
	}
	if !p.UpdatedBefore.IsZero() && p.UpdatedBefore.Before(p.UpdatedAfter) {
		return p, usage("--until is before --since.")
	}
	if !p.CreatedBefore.IsZero() && p.CreatedBefore.Before(p.CreatedAfter) {
		return p, usage("--created-until is before --created-since.")
	}
	return p, nil
}
