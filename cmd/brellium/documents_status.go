package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/brellium/brellium-go"
)

func newDocumentsStatus(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status [ID…]",
		Short: "Print the status of documents, or of all documents",
		RunE: func(cmd *cobra.Command, ids []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			var documents []*brellium.Document
			if len(ids) == 0 {
				documents, err = brellium.Collect(client.Documents.All(cmd.Context(), brellium.DocumentListParams{Limit: 100}))
			}
			for _, id := range ids {
				var document *brellium.Document
				if document, err = client.Documents.Retrieve(cmd.Context(), id); err != nil {
					break
				}
				documents = append(documents, document)
			}
			printErr := rows(a.output, asJSON, []string{"DOCUMENT", "STATUS", "ARRIVED", "AUDIT", "FILE"}, documents, func(d *brellium.Document) []string {
				return []string{d.DocumentID, string(d.Status), yesNo(d.UploadURL.IsZero()), yesNo(d.AuditCreated), d.Filename}
			})
			if err != nil {
				return err
			}
			return printErr
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON lines")
	return cmd
}

// yesNo returns a bool or a *bool as text. Nil means that the API did not say.
func yesNo(v any) string {
	switch v := v.(type) {
	case *bool:
		if v != nil {
			return yesNo(*v)
		}
	case bool:
		if v {
			return "yes"
		}
		return "no"
	}
	return "unknown"
}

func itoa(n int) string { return strconv.Itoa(n) }
