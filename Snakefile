# The door that `snakemake` finds. The workflow itself is workflow/Snakefile, which modules, snakedeploy and the workflow
# catalog use. What to type: README.md. All settings: config/README.md.
#
#     snakemake                     the whole run, down to results/<run>/report.html
#     snakemake -n gauge            what would run for one stage; `snakemake --list-rules` names them
#     snakemake --profile workflow/profiles/slurm
include: "workflow/Snakefile"


workflow.default_target = "all"
